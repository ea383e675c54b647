// Files that lie: every one is refused with Error{Data}, a message with the file, the value and the remedy.
#include "lockstep/tensor/safetensors.h"

#include "lockstep/base/error.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

namespace lockstep::tensor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, 'x'));
}

std::string one_tensor(const std::string& entry, size_t data_bytes) {
  return file_of("{\"t\":" + entry + "}", data_bytes);
}

std::string two_tensors(const std::string& first, const std::string& second) {
  return "{" + first + "," + second + "}";
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

struct Malformed {
  const char* name;
  std::string bytes;
  std::string says;
};

std::vector<Malformed> malformed_files() {
  return {
      {"empty", "", "0 bytes"},
      {"shorter than its length field", "abc", "3 bytes"},
      {"truncated header", with_length(100, "{\"t\":"), "header of 100 bytes but only 5 follow"},
      {"header of 2^63 bytes", with_length(uint64_t{1} << 63, "{}"), "9223372036854775808"},
      {"header of 2^64 - 1 bytes", with_length(~uint64_t{0}, "{}"), "18446744073709551615"},
      {"header above the cap", with_length(100'000'001, "{}"), "100000001"},
      {"no JSON", file_of("garbage!", 0), "not valid JSON"},
      {"empty header", file_of("", 0), "not valid JSON"},
      {"JSON cut off", file_of("{\"t\":{\"dtype\":\"F32\"", 0), "not valid JSON"},
      {"JSON with a tail", file_of("{} {}", 0), "not valid JSON"},
      {"invalid UTF-8", file_of("{\"\xFF\":1}", 0), "not valid JSON"},
      {"a list", file_of("[]", 0), "not a JSON table"},
      {"a number", file_of("17", 0), "not a JSON table"},
      {"nesting bomb", file_of(std::string(10'000, '['), 0), "deeper than 3 levels"},
      {"tensor is a text", one_tensor("\"F32\"", 4), "entry for 't'"},
      {"no dtype", one_tensor(R"({"shape":[1],"data_offsets":[0,4]})", 4), "entry for 't'"},
      {"no offsets", one_tensor(R"({"dtype":"F32","shape":[1]})", 4), "entry for 't'"},
      {"unknown key", one_tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1})", 4), "entry for 't'"},
      {"three offsets", one_tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,8]})", 4), "entry for 't'"},
      {"unknown dtype", one_tensor(R"({"dtype":"F7","shape":[1],"data_offsets":[0,4]})", 4), "'F7'"},
      {"fp8", one_tensor(R"({"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]})", 4), "'F8_E4M3'"},
      {"negative size", one_tensor(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4), "[-1]"},
      {"fractional size", one_tensor(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", 4), "[1.0]"},
      {"size of 2^63", one_tensor(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})", 4), "shape"},
      {"negative offset", one_tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})", 4), "[-4,0]"},
      {"offsets reversed", one_tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4), "bytes 4 to 0"},
      {"beyond the data", one_tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 7), "bytes 0 to 8 of 7"},
      {"shape product overflows",
       one_tensor(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0), "more than 2^64"},
      {"overflow hidden by a zero product",
       one_tensor(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})", 0), "more than 2^64"},
      {"wrong size", one_tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8), "needs 12 bytes but has 8"},
      {"bytes after the last tensor", one_tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", 5),
       "end at byte 4 of 5"},
      {"no tensors but data", file_of("{}", 3), "end at byte 0 of 3"},
      {"hole",
       file_of(two_tensors(R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})",
                           R"("b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]})"), 4), "a hole"},
      {"hole at the start", one_tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[1,3]})", 3), "a hole"},
      {"overlap",
       file_of(two_tensors(R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})",
                           R"("b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]})"), 4), "overlaps"},
      {"a tensor twice",
       file_of(two_tensors(R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})",
                           R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})"), 1), "names 'a' twice"},
      {"a key twice", one_tensor(R"({"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,4]})", 4),
       "names 'dtype' twice"},
      {"metadata is a list", file_of(R"({"__metadata__":[]})", 0), "__metadata__"},
      {"metadata holds a number", file_of(R"({"__metadata__":{"format":1}})", 0), "__metadata__"},
  };
}

TEST(MalformedSafetensors, AreAllRefusedWithTheirReason) {
  const TempFolder folder("malformed");
  const fs::path path = folder.path() / "model.safetensors";
  for (const Malformed& file : malformed_files()) {
    write_file_atomically(path, file.bytes);
    EXPECT_THAT(message_of([&] { SafetensorsFile{path}; }), AllOf(HasSubstr(file.says), HasSubstr("model.safetensors")))
        << file.name;
  }
}

TEST(MalformedSafetensors, ValidOddFilesAreRead) {
  const TempFolder folder("odd");
  const fs::path path = folder.path() / "model.safetensors";
  write_file_atomically(path, file_of("{}", 0));
  EXPECT_TRUE(SafetensorsFile(path).entries().empty());
  // Header length no multiple of 8: the data lies unaligned and is copied.
  write_file_atomically(path, one_tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]} )", 4));
  const at::Tensor tensor = SafetensorsFile(path).tensor("t");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % alignof(float), 0U);
  EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), "xxxx", 4), 0);
}

TEST(MalformedSafetensors, FoldersAndMissingFilesAreNamed) {
  const TempFolder folder("missing");
  EXPECT_THAT(message_of([&] { SafetensorsFile{folder.path()}; }), HasSubstr(folder.path().string()));
  EXPECT_THAT(message_of([&] { SafetensorsFile{folder.path() / "none"}; }), HasSubstr("none"));
}

class ShardedFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    write_safetensors(path() / "one.safetensors", {{"a", at::ones({2})}, {"both", at::ones({1})}});
    write_safetensors(path() / "two.safetensors", {{"b", at::ones({3})}, {"extra", at::ones({1})}});
  }
  const fs::path& path() const { return folder_.path(); }
  std::string open_with(const std::string& index) const {
    write_file_atomically(path() / "model.safetensors.index.json", index);
    return message_of([&] { WeightFiles::open(path()); });
  }

 private:
  TempFolder folder_{"sharded"};
};

TEST_F(ShardedFolder, OpensWhenWholeAndKeepsWhatTheIndexLeavesOut) {
  EXPECT_EQ(open_with(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"), "nothing was thrown");
  const WeightFiles weights = WeightFiles::open(path());
  EXPECT_EQ(weights.names(), (std::vector<std::string>{"a", "b", "both", "extra"}));
  EXPECT_EQ(fs::path(weights.file_of("extra")).filename(), "two.safetensors");
}

TEST_F(ShardedFolder, NamesWhatIsMissing) {
  EXPECT_THAT(open_with(R"({"weight_map":{"a":"one.safetensors","c":"three.safetensors"}})"),
              HasSubstr("three.safetensors that it names is missing"));
  EXPECT_THAT(open_with(R"({"weight_map":{"a":"one.safetensors","c":"two.safetensors"}})"),
              HasSubstr("'c' should be in two.safetensors, but no file has it"));
  EXPECT_THAT(open_with(R"({"weight_map":{"a":"two.safetensors","both":"one.safetensors"}})"),
              HasSubstr("'a' should be in two.safetensors, but it is in one.safetensors"));
}

TEST_F(ShardedFolder, RefusesATensorInTwoFiles) {
  write_safetensors(path() / "two.safetensors", {{"b", at::ones({3})}, {"both", at::ones({1})}});
  EXPECT_THAT(open_with(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"),
              HasSubstr("'both' is in one.safetensors and in two.safetensors"));
}

TEST_F(ShardedFolder, RefusesAMalformedIndex) {
  for (const char* index : {"", "nonsense", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                            R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":"../one.safetensors"}})",
                            R"({"weight_map":{"a":".."}})", R"({"weight_map":{"a":""}})",
                            R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})"}) {
    EXPECT_THAT(open_with(index), HasSubstr("model.safetensors.index.json")) << index;
  }
}

TEST(WeightFolder, WithoutWeightsIsRefusedWithARemedy) {
  const TempFolder folder("empty");
  EXPECT_THAT(message_of([&] { WeightFiles::open(folder.path()); }), HasSubstr("Name a Hugging Face model folder"));
  write_file_atomically(folder.path() / "pytorch_model.bin", "x");
  EXPECT_THAT(message_of([&] { WeightFiles::open(folder.path()); }), HasSubstr("safe_serialization=True"));
}

}  // namespace
}  // namespace lockstep::tensor
