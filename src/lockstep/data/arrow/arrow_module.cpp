#include "lockstep/data/arrow/arrow_module.h"

#include "lockstep/data/arrow/arrow_json.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::data::arrow_module {

template <class T>
T value(arrow::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return *std::move(result);
}

void check(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

using Batch = std::shared_ptr<arrow::RecordBatch>;

/// Record batches of a file, one after the other; null at the end.
class Batches {
 public:
  explicit Batches(const std::string& path) : file_(value(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ))) {
    const auto head = value(file_->ReadAt(0, 6));
    const std::string_view magic(reinterpret_cast<const char*>(head->data()), static_cast<size_t>(head->size()));
    if (magic.starts_with("PAR1")) {
      open_parquet();
    } else if (magic == "ARROW1") {
      blocks_ = value(arrow::ipc::RecordBatchFileReader::Open(file_));
    } else if (magic.starts_with("FEA1")) {
      throw std::runtime_error("a Feather file of version 1, which is not read");
    } else {
      stream_ = value(arrow::ipc::RecordBatchStreamReader::Open(file_));
    }
  }

  Batch next() {
    Batch batch;
    if (blocks_) {
      if (next_block_ < blocks_->num_record_batches()) batch = value(blocks_->ReadRecordBatch(next_block_++));
    } else {
      check(stream_->ReadNext(&batch));
    }
    if (batch) check(batch->ValidateFull());  // a damaged file must not lead outside its buffers
    return batch;
  }

 private:
  void open_parquet() {
    constexpr int64_t kRowsAtOnce = 1024;
    parquet::arrow::FileReaderBuilder builder;
    check(builder.Open(file_));
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(kRowsAtOnce);
    properties.set_arrow_extensions_enabled(true);
    parquet_ = value(builder.memory_pool(arrow::system_memory_pool())->properties(properties)->Build());
    stream_ = value(parquet_->GetRecordBatchReader());
  }

  std::shared_ptr<arrow::io::MemoryMappedFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> parquet_;
  std::shared_ptr<arrow::RecordBatchReader> stream_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> blocks_;
  int next_block_ = 0;
};

}  // namespace lockstep::data::arrow_module

struct lockstep_arrow_rows {
  std::string path;
  std::unique_ptr<lockstep::data::arrow_module::Batches> batches;
  lockstep::data::arrow_module::Batch batch;
  int64_t next_row = 0;
  std::string json;
  std::string error;

  bool next() {
    if (!batches) batches = std::make_unique<lockstep::data::arrow_module::Batches>(path);
    while (!batch || next_row == batch->num_rows()) {
      batch = batches->next();
      next_row = 0;
      if (!batch) return false;
    }
    json = "{";
    for (int column = 0; column < batch->num_columns(); ++column) {
      if (column > 0) json += ',';
      const std::string& name = batch->column_name(column);
      lockstep::data::arrow_module::append_json_string(name.data(), name.size(), json);
      json += ':';
      lockstep::data::arrow_module::append_json(*batch->column(column), next_row, json);
    }
    json += '}';
    ++next_row;
    return true;
  }
};

#define LOCKSTEP_ARROW_EXPORT __attribute__((visibility("default")))

extern "C" {

LOCKSTEP_ARROW_EXPORT lockstep_arrow_rows* lockstep_arrow_open(const char* path) {
  auto* rows = new lockstep_arrow_rows;
  rows->path = path;
  return rows;
}

LOCKSTEP_ARROW_EXPORT int lockstep_arrow_next(lockstep_arrow_rows* rows, const char** json, size_t* size) {
  try {
    if (!rows->next()) return 0;
    *json = rows->json.data();
    *size = rows->json.size();
    return 1;
  } catch (const std::exception& error) {
    rows->error = error.what();
    return -1;
  }
}

LOCKSTEP_ARROW_EXPORT const char* lockstep_arrow_error(const lockstep_arrow_rows* rows) { return rows->error.c_str(); }

LOCKSTEP_ARROW_EXPORT void lockstep_arrow_close(lockstep_arrow_rows* rows) { delete rows; }
}
