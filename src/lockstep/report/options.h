#pragma once

#include <string>

namespace lockstep::report {

struct ReportOptions {
  std::string output = "report.html";

  template <class V>
  void visit(V& v) {
    v.group("Report");
    v("output", output, "The page to write; an older report there is replaced. - is standard output.").unit("path");
  }
};

}  // namespace lockstep::report
