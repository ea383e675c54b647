// The processes of a job without a Trainer: what torch.distributed offers.
//   lockstep run --nproc_per_node 3 ./collectives        (or torchrun; alone it is a group of one)
#include <lockstep/lockstep.h>

#include <iostream>
#include <numeric>

namespace distributed = lockstep::distributed;

int main() try {
  distributed::init({.backend = "gloo", .timeout = 60});
  const int rank = distributed::rank();

  std::vector<double> values = {1.0 * rank, 1};
  distributed::all_reduce(values);                                    // sums: 0 + 1 + ..., the number of ranks
  std::vector<int64_t> highest = {rank};
  distributed::all_reduce(highest, distributed::ReduceOp::Max);

  std::vector<float> mine(static_cast<size_t>(rank) + 1);             // a different number on every rank
  std::iota(mine.begin(), mine.end(), 0.0F);
  size_t gathered = 0;
  for (const auto& of_rank : distributed::all_gather(std::span<const float>(mine))) gathered += of_rank.size();

  std::vector<int64_t> from_first = {rank == 0 ? 42 : 0};
  distributed::broadcast(from_first);
  distributed::barrier();

  std::string line;
  for (const std::string& word : distributed::all_gather("rank" + std::to_string(rank))) line += word + " ";
  if (rank == 0) {
    std::cout << line << "sum " << values[0] << " of " << values[1] << ", highest " << highest[0] << ", gathered " << gathered
              << ", from rank 0: " << from_first[0] << '\n';
  }
  distributed::destroy();
} catch (const lockstep::Error& error) {
  std::cerr << "error: " << error.what() << '\n';
  return error.exit_code();
}
