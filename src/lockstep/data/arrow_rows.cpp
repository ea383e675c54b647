#include "lockstep/data/arrow_rows.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/data/arrow/arrow_module.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

namespace lockstep::data {
namespace {

constexpr const char* kModuleName = "lockstep_arrow.so";

/// The functions of lockstep_arrow.so. Stays loaded: its libraries have threads and state of their own.
struct ArrowModule {
  decltype(&lockstep_arrow_open) open = nullptr;
  decltype(&lockstep_arrow_next) next = nullptr;
  decltype(&lockstep_arrow_error) error = nullptr;
  decltype(&lockstep_arrow_close) close = nullptr;
};

/// The folder of the program or library that this code is part of.
fs::path own_folder() {
  Dl_info info{};
  static const char kHere = 0;
  if (dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path holder = fs::path(info.dli_fname);
  return (holder.has_parent_path() && holder.is_absolute() ? holder : program).parent_path();
}

template <class Function>
void find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw Error::environment("{} lacks {}: it belongs to another version. Build anew.", kModuleName, name);
}

ArrowModule load_module(const fs::path& for_file) {
  std::string reason;
  for (const fs::path& folder : {own_folder(), fs::path(LOCKSTEP_ARROW_MODULE_FOLDER)}) {
    const fs::path path = folder / kModuleName;
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      reason = dlerror();
      continue;
    }
    ArrowModule module;
    find_function(library, "lockstep_arrow_open", module.open);
    find_function(library, "lockstep_arrow_next", module.next);
    find_function(library, "lockstep_arrow_error", module.error);
    find_function(library, "lockstep_arrow_close", module.close);
    return module;
  }
  if (!reason.empty()) {
    throw Error::environment("{}: Parquet and Arrow files are read by {}, which cannot be loaded: {}. Run scripts/setup and "
                             "build anew.", for_file.string(), kModuleName, reason);
  }
  throw Error::environment("{}: Parquet and Arrow files are read by {}, which this build does not have: pyarrow's C++ libraries "
                           "were not there when it was made. Run scripts/setup and build anew, or write the data as JSON "
                           "lines.", for_file.string(), kModuleName);
}

const ArrowModule& arrow_module_for(const fs::path& file) {
  static const ArrowModule module = load_module(file);
  return module;
}

/// Arrow's words begin with "Invalid: " and may hold several lines.
std::string one_line_of(std::string words) {
  std::replace(words.begin(), words.end(), '\n', ' ');
  while (!words.empty() && (words.back() == '.' || words.back() == ' ')) words.pop_back();
  return words;
}

class ArrowRowReader final : public RowReader {
 public:
  explicit ArrowRowReader(const fs::path& path)
      : module_(arrow_module_for(path)), file_(path.string()), rows_(module_.open(file_.c_str()), module_.close) {}

  std::optional<text::JsonRow> next() override {
    const char* json = nullptr;
    size_t size = 0;
    const int found = module_.next(rows_.get(), &json, &size);
    if (found < 0) {
      throw Error::data("{}: is damaged or of a kind that is not read, after {} rows: {}. Write it again, or as JSON lines.",
                        file_, number_, one_line_of(module_.error(rows_.get())));
    }
    if (found == 0) return std::nullopt;
    ++number_;
    text::JsonRow row{text::JsonValue::parse({json, size}, fmt::format("{}, item {}", file_, number_)), file_, number_, true};
    return row;
  }

 private:
  const ArrowModule& module_;
  std::string file_;
  std::unique_ptr<lockstep_arrow_rows, void (*)(lockstep_arrow_rows*)> rows_;
  int64_t number_ = 0;
};

}  // namespace

std::unique_ptr<RowReader> open_arrow_rows(const fs::path& file) {
  const MappedFile readable(file);  // for the usual words when it is not there
  return std::make_unique<ArrowRowReader>(file);
}

}  // namespace lockstep::data
