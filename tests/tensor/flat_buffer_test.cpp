#include "lockstep/tensor/flat_buffer.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/utsname.h>

#include <cstdio>
#include <vector>

namespace lockstep::tensor {
namespace {

constexpr size_t kPage = 4096;

std::span<const std::byte> bytes_of(const at::Tensor& x) {
  return {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
}

size_t num_resident_pages(const at::Tensor& x) {
  std::vector<unsigned char> resident((x.nbytes() + kPage - 1) / kPage);
  EXPECT_EQ(mincore(x.data_ptr(), x.nbytes(), resident.data()), 0);
  size_t count = 0;
  for (const unsigned char page : resident) count += page & 1U;
  return count;
}

bool kernel_can_populate() {
  utsname name{};
  int major = 0, minor = 0;
  uname(&name);
  std::sscanf(name.release, "%d.%d", &major, &minor);
  return major > 5 || (major == 5 && minor >= 14);
}

TEST(FlatBuffer, TakenPagesAreThereBeforeTheFirstWrite) {
  ThreadTeam team(2);
  const at::Tensor small = zero_flat_buffer(1000, at::kFloat);
  const at::Tensor large = zero_flat_buffer(9 << 20, at::kFloat);  // several huge pages and parts
  EXPECT_EQ(num_resident_pages(large), 0U);
  const std::vector<std::span<const std::byte>> buffers{bytes_of(small), bytes_of(large)};
  take_pages(buffers, team);
  // An older kernel refuses, and the first write takes them as ever.
  const bool taken = kernel_can_populate();
  EXPECT_EQ(num_resident_pages(small), taken ? 1U : 0U);
  EXPECT_EQ(num_resident_pages(large), taken ? large.nbytes() / kPage : 0U);
}

TEST(FlatBuffer, SmallPagesAreTakenOneByOne) {
  const at::Tensor x = zero_flat_buffer(4 << 20, at::kFloat, Pages::Small);
  x.data_ptr<float>()[3'000'000] = 1;
  EXPECT_EQ(num_resident_pages(x), 1U);
}

TEST(FlatBuffer, TakingPagesKeepsValues) {
  ThreadTeam team(2);
  const at::Tensor x = zero_flat_buffer(3 << 20, at::kFloat);
  auto* values = x.data_ptr<float>();
  values[0] = 1;
  values[2'000'000] = 2;
  // Any part of a buffer will do: it need not begin at a page.
  const std::vector<std::span<const std::byte>> buffers{bytes_of(x).subspan(12), {}};
  take_pages(buffers, team);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[2'000'000], 2);
}

}  // namespace
}  // namespace lockstep::tensor
