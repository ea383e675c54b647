#!/usr/bin/env python3
"""Write template_cases.json beside this file: what transformers renders for templates that use Python's ways.

Needs transformers 5.24.0 and jinja2 3.1.6. Run it again after adding a case.
"""
import datetime
import json
import os

from transformers.utils import chat_template_utils as utils

NOW = "2026-01-31T09:05:07"


class FixedNow(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(NOW)


utils.datetime = FixedNow

HI = [{"role": "user", "content": "Hi"}]
TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "世界 hello "},
         {"role": "user", "content": "Bye"}, {"role": "assistant", "content": "  ok  "}]
MARKED = ("{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<end>"
          "{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
          "{% if add_generation_prompt %}<assistant>{% endif %}")
VALUES = {"f": 1e-7, "g": 1e20, "h": 0.1, "one": 1.0, "big": 2**70, "neg": -(2**64), "s": "it's <b>&\"x\"\n\u00e9\u2028",
          "none": None, "yes": True, "items": [1, "a", None, True, 2.5, {"k": [1e-9]}], "empty": [], "void": {},
          "map": {"b": 1, "a": {"z": [], "y": {}}}, "lines": "a\n\nb\r\nc\n"}

CASES = [
    ("none is not iterable", "{{ none is iterable }} {{ nothing is iterable }} {{ 'a' is iterable }} {{ 3 is iterable }}"),
    ("sequence", "{{ 'a' is sequence }} {{ map is sequence }} {{ nothing is sequence }} {{ items is sequence }} {{ none is sequence }}"),
    ("kinds", "{{ map is mapping }} {{ s is string }} {{ one is number }} {{ yes is boolean }} {{ nothing is defined }} {{ none is none }}"),
    ("floats", "{{ f }} {{ g }} {{ h }} {{ one }} {{ f | string }} {{ [f, g] }}"),
    ("big integers", "{{ big }} {{ neg }} {{ big | tojson }} {{ [big] }}"),
    ("lists and dicts", "{{ items }} {{ map }} {{ [s] }} {{ (1,) }} {{ (1, 'b') }}"),
    ("tojson", "{{ map | tojson }} {{ s | tojson }} {{ items | tojson }} {{ none | tojson }}"),
    ("tojson indent", "{{ map | tojson(indent=2) }}|{{ items | tojson(indent=4) }}|{{ empty | tojson(indent=2) }}"),
    ("tojson options", "{{ map | tojson(separators=(',', ':'), sort_keys=true) }} {{ s | tojson(ensure_ascii=true) }}"),
    ("tojson positional", "{{ map | tojson(true, 1) }}"),
    ("tojson sorted and indented", "{{ map | tojson(indent=3, sort_keys=True) }}"),
    ("tojson of undefined", "{{ nothing | tojson }}"),
    ("indent", "[{{ lines | indent }}][{{ lines | indent(2, true) }}][{{ lines | indent(2, first=False, blank=True) }}]"),
    ("indent by text", "[{{ 'a\nb' | indent('> ', true) }}]"),
    ("line ends", "a\r\nb{% if true %}\r\nc{% endif %}\r\nd\r"),
    ("trim and lstrip blocks", "  {% if true %}\n  x\n  {% endif %}\n  {%+ if true %}y{% endif +%}\nz\n"),
    ("string methods", "{{ ' ab '.strip() }}|{{ 'a,b,c'.split(',') }}|{{ 'a b'.split() }}|{{ 'abc'.startswith('ab') }}|"
     "{{ 'abc'.endswith(('x', 'c')) }}|{{ 'abc'.replace('b', 'x') }}|{{ 'abc'.upper() }}|{{ 'xxa'.lstrip('x') }}|"
     "{{ 'abc'.find('c') }}|{{ 'aXb'.lower().title() }}|{{ ','.join(['a', 'b']) }}"),
    ("more string methods", "{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}|{{ 'a=b=c'.partition('=') }}|"
     "{{ 'a=b=c'.rpartition('=') }}|{{ 'a\nb\x0bc'.splitlines() }}|{{ 'a</t>b'.split('</t>')[-1] }}|{{ 'a-b-c'.rsplit('-', 1) }}"),
    ("dict methods", "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}{{ map.get('x') }} {{ map.get('b') }} {{ map.keys() | list }}"),
    ("filters", "{{ items | length }} {{ [3,1,2] | sort | join('-') }} {{ 'a' | default('b') }} {{ nothing | default('b') }} "
     "{{ items | first }} {{ [1,2,3] | last }} {{ '  x ' | trim }} {{ 'a' | upper }} {{ [1,2] | map('string') | list }}"),
    ("selectattr", "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | map(attribute='role') | join(',') }}"),
    ("slices", "{{ messages[::-1] | length }} {{ 'hello'[1:3] }} {{ items[1:] }} {{ 'hello'[::-1] }} {{ messages[-1].role }}"),
    ("loops", "{% for m in messages %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{% if loop.previtem is defined %}p{% endif %}"
     "{% if m.role == 'x' %}{% continue %}{% endif %}{% if loop.index > 1 %}{% break %}{% endif %};{% endfor %}"),
    ("namespace", "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}"),
    ("macro", "{% macro f(x, y='d') %}[{{ x }}{{ y }}]{% endmacro %}{{ f(1) }}{{ f(2, y='e') }}"),
    ("concatenation", "{{ 'a' ~ 1 ~ none ~ true }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ -7 % 3 }}"),
    ("inline if", "{{ 'a' if yes else 'b' }}{{ 'c' if nothing }}"),
    ("strftime", "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%A %B %-d') }}"),
    ("raise", "{{ raise_exception('only user and ' ~ 'assistant') }}"),
    ("undefined attribute", "{{ messages[0].nothing }}|{{ nothing.more }}"),
    ("special tokens", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token is defined }}"),
    ("tools given or not", "{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }}"),
    ("raw", "{% raw %}{{ x }}{% generation %}{% endraw %}"),
    ("comment", "a{# {% generation %} #}b"),
    ("trailing newline", "a\n"),
    ("filter block", "{% filter upper %}abc{% endfilter %}"),
    ("set block", "{% set x %}a{{ 1 }}{% endset %}[{{ x }}]"),
    ("call block", "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}x{% endcall %}"),
    ("in", "{{ 'a' in 'abc' }} {{ 'role' in messages[0] }} {{ 1 in [1] }} {{ 'x' not in map }}"),
    ("tests", "{{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ 'a' is eq 'a' }} {{ items is defined and items }}"),
    ("not json number keys", "{{ {1: 'a', none: 2} | tojson }}"),
    ("dictsort", "{% for k, v in map | dictsort %}{{ k }}{% endfor %}"),
    ("int", "{{ '12' | int }} {{ ' -7 ' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '1.9' | int }} {{ 2.7 | int }} {{ none | int }} "
     "{{ yes | int }} {{ '0x1f' | int(base=16) }} {{ '1_0' | int }} {{ big | int }} {{ [] | int(default=3) }}"),
    ("float", "{{ '1.5' | float }} {{ '2' | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ none | float }} {{ 3 | float }} {{ '1e-9' | float }}"),
    ("int of undefined", "{{ nothing | int }}"),
    ("items filter", "{% for k, v in map | items %}{{ k }}{% endfor %}"),
]


def case(name, template, messages=None, extra=VALUES, special=None, **options):
    return dict(name=name, template=template, messages=messages or TURNS, extra=extra, special_tokens=special or {}, **options)


def all_cases():
    for name, template in CASES:
        yield case(name, template, special={"bos_token": "<s>", "eos_token": "</s>"})
    yield case("generation", MARKED, extra={})
    yield case("generation prompt", MARKED, HI, extra={}, add_generation_prompt=True)
    yield case("generation with marks", "{% for m in messages %}\n  {%- generation -%}\n  {{ m.content }}\n  {%- endgeneration %}\n\n{% endfor %}", extra={})
    yield case("generation at line starts", "{% for m in messages %}\n  {% generation %}\n[{{ m.content }}]\n  {% endgeneration %}\n{% endfor %}", extra={})
    yield case("generation has its own scope", "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}", extra={})
    yield case("namespace set inside generation", "{% set n = namespace(x=1) %}{% generation %}{% set n.x = 2 %}a{% endgeneration %}{{ n.x }}", extra={})
    yield case("generation text in a string", "{{ '{% generation %}' }}{% generation %}b{% endgeneration %}", extra={})
    yield case("empty generation", "a{% generation %}{% endgeneration %}b", extra={})
    nulls = [{"role": "user", "content": "x", "tool_calls": None, "name": None}]
    yield case("null keys of messages are dropped", "{{ messages[0] }} {{ 'name' in messages[0] }} {{ messages[0].tool_calls is defined }}", nulls, extra={})
    for field in ("reasoning_content", "thinking", "reasoning"):
        message = [{"role": "assistant", field: "why", "content": "x"}]
        yield case(f"{field} is offered under the other names", "{{ messages[0] }}", message, extra={})
    yield case("two reasonings", "{{ messages[0] }}", [{"role": "assistant", "reasoning": "r", "thinking": "t"}], extra={})
    yield case("extra wins over special tokens", "{{ bos_token }}", extra={"bos_token": "B"}, special={"bos_token": "<s>"})
    for template, name in (("{% for m in messages %}[{{ m.content }}]{% endfor %}", "kept spaces"),
                           ("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}", "trimmed")):
        yield case(f"continue the final message, {name}", template, TURNS, extra={}, continue_final_message=True)
    blocks = [{"role": "assistant", "content": [{"type": "text", "text": "a "}, {"type": "image"}]}]
    yield case("continue the final block", "{% for b in messages[0].content %}<{{ b.text }}>{% endfor %}", blocks, extra={}, continue_final_message=True)
    yield case("nothing to continue", "{{ messages[0].content }}", [{"role": "user"}], extra={}, continue_final_message=True)
    yield case("final message not printed", "{{ messages[0].content }}", TURNS, extra={}, continue_final_message=True)
    yield case("tools", "{% for t in tools %}{{ t | tojson }}{% endfor %}", extra={}, tools=[{"name": "<f>", "x": [1, 2.0]}])
    yield case("no tools in the list", "{{ tools is none }}{{ tools | length }}", extra={}, tools=[])


def render(item):
    messages = utils._normalize_chat_messages(item["messages"])
    spans = not item.get("continue_final_message", False)
    rendered, indices = utils.render_jinja_template(
        [messages], tools=item.get("tools"), chat_template=item["template"], return_assistant_tokens_mask=spans,
        continue_final_message=not spans, add_generation_prompt=item.get("add_generation_prompt", False),
        **{**item["special_tokens"], **item["extra"]})
    return rendered[0], indices[0] if spans else []


def main():
    items = []
    for item in all_cases():
        try:
            item["rendered"], item["spans"] = render(item)
        except Exception as error:  # whatever the template engine raises is what the test expects
            item["error"] = f"{type(error).__name__}: {error}"
        # A text, because the test's JSON library has no integers beyond 64 bits.
        item["extra_json"] = json.dumps(item.pop("extra"))
        items.append(item)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "template_cases.json")
    rows = ",\n  ".join(json.dumps(item, ensure_ascii=True) for item in items)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{{"now": "{NOW}", "cases": [\n  {rows}\n]}}\n')


if __name__ == "__main__":
    main()
