#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/options/resolve.h"

namespace lockstep::options {

/// A small struct with every type, class and kind of limit.
struct ExampleOptions {
  double rate = 2e-5;
  int64_t count = 8;
  bool plain = false;
  bool on = true;
  std::optional<bool> maybe;
  std::optional<int64_t> length = 1024;
  std::optional<double> share;
  std::string word = "a";
  std::optional<std::string> name;
  std::vector<std::string> names;
  std::optional<std::vector<std::string>> layers;
  std::optional<std::string> settings;
  int64_t loaders = 0;
  bool adapters = false;
  std::optional<std::string> token;
  std::string inner = "x";

  template <class V>
  void visit(V& v) {
    v.group("First");
    v("rate", rate, "A rate.").above(0).at_most(1);
    v("count", count, "A count.").unit("samples").at_least(1);
    v("plain_switch", plain, "A switch.");
    v("on_switch", on, "A switch that is on.");
    v("maybe_switch", maybe, "A switch that may be unset.").unset("as it comes");
    v("length", length, "A length.").unit("tokens").at_least(1).unset("no limit");
    v("share", share, "A share.").at_least(0).below(1);
    v("word", word, "A word.").choices({"a", "b"}).refused_values({"c"}, "is not there yet", "Use a or b.");
    v.group("Second");
    v("name", name, "A name.");
    v("names", names, "Some names.");
    v("layers", layers, "Some layers.");
    v("settings", settings, "A mapping.").json();
    v("loaders", loaders, "Loaders.").no_object("there are none");
    v("adapters", adapters, "Adapters.").refused("adapters are not there yet", "Leave it out.");
    v("token", token, "A token.").secret().no_object("nothing is sent");
    v("inner", inner, "For debugging.").pattern("x|y[0-9]", "x, or y and a digit").hidden();
  }
};

/// Options with what came out of resolving `args`; `fields` point into `options`, so it stays where it is.
struct Example {
  explicit Example(const std::vector<std::string>& args) : resolved(resolve(args, fields)) {}
  Example(const Example&) = delete;
  Example& operator=(const Example&) = delete;

  std::string problem() const {
    return resolved.problems.texts().size() == 1 ? resolved.problems.texts().front() : all_problems();
  }
  std::string all_problems() const {
    std::string text;
    for (const std::string& each : resolved.problems.texts()) text += each + "\n";
    return text;
  }

  ExampleOptions options;
  Fields fields = collect(options);
  Resolved resolved;
};

}  // namespace lockstep::options
