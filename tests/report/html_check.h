#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::report {

/// What a strict reader finds in a page that consists of well-formed elements with quoted attributes. Anything that a
/// browser could take otherwise (an unknown element, an attribute without quotes, a stray < or quote, a bare &) is a
/// complaint.
struct HtmlFound {
  std::vector<std::string> complaints;
  std::map<std::string, int> elements;
  std::set<std::string> attributes;
  std::string text;  ///< of all elements but <style>, entities resolved
};

inline HtmlFound read_html(std::string_view html) {
  HtmlFound found;
  std::vector<std::string> open;
  const std::set<std::string> empty = {"meta", "input", "path", "circle", "rect"};
  const auto complain = [&](const std::string& what, std::string_view where) {
    found.complaints.push_back(what + " at: " + std::string(where.substr(0, 60)));
  };
  const auto is_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-'; };
  if (html.starts_with("<!DOCTYPE html>")) html.remove_prefix(15);
  while (!html.empty()) {
    const char c = html[0];
    if (c == '&') {
      bool known = false;
      for (const auto& [entity, meaning] : {std::pair("&amp;", '&'), std::pair("&lt;", '<'), std::pair("&gt;", '>'),
                                            std::pair("&quot;", '"'), std::pair("&#39;", '\'')}) {
        if (!html.starts_with(entity)) continue;
        known = true;
        found.text += meaning;
        html.remove_prefix(std::string_view(entity).size());
        break;
      }
      if (known) continue;
      complain("a bare &", html);
    }
    if (c != '<') {
      if (c == '>' && (open.empty() || open.back() != "style")) complain("a bare >", html);
      if (open.empty() || open.back() != "style") found.text += c;
      html.remove_prefix(1);
      continue;
    }
    const bool closes = html.size() > 1 && html[1] == '/';
    size_t end = closes ? 2 : 1;
    while (end < html.size() && is_name(html[end])) ++end;
    const std::string name(html.substr(closes ? 2 : 1, end - (closes ? 2 : 1)));
    if (name.empty()) {
      complain("a bare <", html);
      html.remove_prefix(1);
      continue;
    }
    std::string_view rest = html.substr(end);
    while (!closes && rest.starts_with(' ')) {
      rest.remove_prefix(1);
      size_t length = 0;
      while (length < rest.size() && is_name(rest[length])) ++length;
      const std::string attribute(rest.substr(0, length));
      rest.remove_prefix(length);
      found.attributes.insert(attribute);
      if (attribute.empty()) complain("an attribute without a name", rest);
      if (!rest.starts_with('=')) continue;
      const size_t closing = rest.starts_with("=\"") ? rest.find('"', 2) : rest.npos;
      if (closing == rest.npos) {
        complain("an attribute without quotes", rest);
        break;
      }
      if (rest.substr(2, closing - 2).find('<') != rest.npos) complain("a < in an attribute", rest);
      rest.remove_prefix(closing + 1);
    }
    const bool self_closed = rest.starts_with("/>");
    if (!self_closed && !rest.starts_with('>')) complain("an odd tag", html);
    rest.remove_prefix(std::min(rest.size(), size_t{self_closed ? 2U : 1U}));
    if (closes) {
      if (open.empty() || open.back() != name) complain("</" + name + "> closes nothing", html);
      else open.pop_back();
    } else {
      ++found.elements[name];
      if (!self_closed && !empty.contains(name)) open.push_back(name);
    }
    html = rest;
  }
  for (const std::string& name : open) found.complaints.push_back("<" + name + "> is never closed");
  return found;
}

}  // namespace lockstep::report
