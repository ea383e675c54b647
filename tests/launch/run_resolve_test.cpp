#include "launch/run_words.h"
#include "lockstep/launch/run_command_line.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

constexpr const char* kFreshId = "00000000-0000-4000-8000-000000000001";

RunSpec resolve(const std::string& line, const Environment& environment = {}, std::optional<int> num_gpus = {},
                options::Words* notes = nullptr) {
  options::Words unused;
  return make_run_spec(parse_line(line, environment), environment,
                       {.num_cpus = 6, .num_gpus = num_gpus, .fresh_id = kFreshId}, notes == nullptr ? unused : *notes);
}

TEST(RunResolve, CountsWorkers) {
  EXPECT_EQ(resolve("x").num_workers, 1);
  EXPECT_EQ(resolve("--nproc_per_node 12 x").num_workers, 12);
  EXPECT_EQ(resolve("--nproc_per_node cpu x", {}, 4).num_workers, 6);
  EXPECT_EQ(resolve("--nproc_per_node auto x").num_workers, 6);
  EXPECT_EQ(resolve("--nproc_per_node auto x", {}, 4).num_workers, 4);
  EXPECT_EQ(resolve("--nproc_per_node gpu x", {}, 4).num_workers, 4);
  EXPECT_NE(usage_error([] { resolve("--nproc_per_node gpu x"); }).find("no GPU is visible"), std::string::npos);
}

struct Meets {
  const char* line;
  Meeting meeting;
  const char* host;
  int port;
  const char* run_id;
  bool use_agent_store = true;
};

void expect_meets(const Meets& c, const Environment& environment = {}) {
  const RunSpec spec = resolve(c.line, environment);
  EXPECT_EQ(spec.meeting, c.meeting) << c.line;
  EXPECT_EQ(spec.endpoint_host, c.host) << c.line;
  EXPECT_EQ(spec.endpoint_port, c.port) << c.line;
  EXPECT_EQ(spec.run_id, c.run_id) << c.line;
  EXPECT_EQ(spec.use_agent_store, c.use_agent_store) << c.line;
}

TEST(RunResolve, MeetsAsTorchrunDoes) {
  using enum Meeting;
  for (const Meets& c : {
           Meets{"x", OneNode, "localhost", 0, kFreshId},
           Meets{"--rdzv_id mine x", OneNode, "localhost", 0, kFreshId},
           Meets{"--node_rank 3 --master_addr far x", OneNode, "localhost", 0, kFreshId},
           Meets{"--standalone x", OneNode, "localhost", 0, kFreshId},
           Meets{"--standalone --rdzv_id mine --rdzv_endpoint h:1 x", OneNode, "localhost", 0, kFreshId},
           Meets{"--rdzv_backend c10d --rdzv_endpoint localhost:0 x", OneNode, "localhost", 0, "none"},
           Meets{"--nnodes 1:4 --rdzv_backend c10d --rdzv_endpoint localhost:0 x", C10d, "localhost", 0, "none"},
           Meets{"--rdzv_backend c10d --rdzv_id j --local_addr 10.0.0.5 x", OneNode, "10.0.0.5", 0, "j"},
           Meets{"--master_port 29511 x", OneNode, "127.0.0.1", 29511, "none"},
           Meets{"--rdzv_endpoint n0:77 x", OneNode, "n0", 77, "none"},
           Meets{"--nnodes 2 --master_addr n0 x", Static, "n0", 29500, "none"},
           Meets{"--nnodes 2 --rdzv_endpoint [fe80::1]:5 x", Static, "fe80::1", 5, "none"},
           Meets{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0 --rdzv_id j x", C10d, "n0", 29400, "j"},
           Meets{"--nnodes 1:4 --rdzv_backend c10d --rdzv_endpoint ::1 x", C10d, "::1", 29400, "none"},
           Meets{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint [::1] x", C10d, "::1", 29400, "none"},
       }) {
    expect_meets(c);
  }
  const Environment unshared = {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}};
  expect_meets({"x", OneNode, "localhost", 0, kFreshId, false}, unshared);
  expect_meets({"--master_port 29511 x", OneNode, "127.0.0.1", 29511, "none", true}, unshared);
  expect_meets({"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0:1 x", C10d, "n0", 1, "none", false}, unshared);
}

TEST(RunResolve, FallsBackToTheCallersVariablesWithSeveralNodesOnly) {
  const Environment environment = {{"MASTER_ADDR", "n7"}, {"MASTER_PORT", "1111"}, {"NODE_RANK", "1"}};
  options::Words notes;
  const RunSpec spec = resolve("--nnodes 2 x", environment, {}, &notes);
  EXPECT_EQ(spec.endpoint_host, "n7");
  EXPECT_EQ(spec.endpoint_port, 1111);
  EXPECT_EQ(spec.node_rank, 1);
  EXPECT_EQ(notes.size(), 3U);
  const RunSpec flags = resolve("--nnodes 2 --node_rank 0 --master_addr n1 --master_port 2 x", environment);
  EXPECT_EQ(flags.endpoint_host, "n1");
  EXPECT_EQ(flags.endpoint_port, 2);
  EXPECT_EQ(flags.node_rank, 0);
  EXPECT_EQ(resolve("x", environment).endpoint_host, "localhost");
  EXPECT_EQ(resolve("--nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0:1 x", environment).node_rank, std::nullopt);
}

TEST(RunResolve, SaysWhereNodesMeetThatWereToldNoPlace) {
  options::Words notes;
  EXPECT_EQ(resolve("--nnodes 2 --node_rank 1 x", {}, {}, &notes).endpoint_host, "127.0.0.1");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_TRUE(notes[0].starts_with("there is no --rdzv_endpoint: the nodes meet at 127.0.0.1:29500 (torchrun's default), which "
                                   "works only when all of them are on this host. Give --rdzv_endpoint HOST:PORT")) << notes[0];
  for (const char* line : {"--nnodes 2 --master_addr 127.0.0.1 x", "--nnodes 2 --rdzv_endpoint 127.0.0.1:29500 x", "x"}) {
    notes.clear();
    resolve(line, {}, {}, &notes);
    EXPECT_TRUE(notes.empty()) << line << ": " << notes[0];
  }
}

TEST(RunResolve, RefusesWhatCannotWork) {
  struct Case {
    const char* line;
    const char* part;
  };
  for (const Case& c : {
           Case{"--nnodes 0 x", "1 <= MIN <= MAX"}, Case{"--nnodes 3:2 x", "1 <= MIN <= MAX"},
           Case{"--standalone --nnodes 2 x", "--standalone means one node"},
           Case{"--nnodes 2 --rdzv_endpoint n0 x", "rdzv_endpoint = n0 (command line): the port is missing. Write n0:29500."},
           Case{"--nnodes 2 --node_rank 2 x", "must be below the number of nodes, 2"},
           Case{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0:99999 x", "'99999' is not a port"},
           Case{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint :1 x", "is not host:port"},
           Case{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint -1:29500 x",
                "rdzv_endpoint = -1:29500 (command line): '-1' is no host name"},
           Case{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint [::1 x", "rdzv_endpoint = [::1 (command line): this is not"},
           Case{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0:29500x x", "'29500x' is not a port"},
           Case{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0:1:2 x", "is not host:port"},
           Case{"--nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0:0 x", "port 0 means any free one"},
           Case{"--nnodes 1:2 --rdzv_endpoint n0:0 x", "port 0 means any free one"},
           Case{"--nnodes 2 --master_port 0 x", "port 0 means any free one"},
           Case{"--nnodes 2 --master_addr [::1 x", "master_addr = [::1 (command line): must be a host name"},
           Case{"--nnodes 2 --master_addr n0:29500 x", "without a port"},
           Case{"--nnodes 2 --master_addr= x", "must be a host name"},
           Case{"--rdzv_backend c10d --rdzv_endpoint [::1 x", "is not host:port"},
           Case{"--standalone --rdzv_endpoint n0:70000 x", "'70000' is not a port"},
           Case{"--local_addr n0:1 x", "local_addr = n0:1 (command line): must be a host name"},
           Case{"--rdzv_conf join_timeout x", "\"join_timeout\" is not KEY=VALUE"},
           Case{"--rdzv_conf store_type=file x", "store_type"}, Case{"--tee 4 x", "tee = 4"},
           Case{"--redirects 0:3,x x", "redirects = 0:3,x"}, Case{"--local_ranks_filter a x", "local ranks such as"},
       }) {
    EXPECT_NE(usage_error([&] { resolve(c.line); }).find(c.part), std::string::npos)
        << c.line << ": " << usage_error([&] { resolve(c.line); });
  }
}

TEST(RunResolve, ReadsTheRendezvousSettings) {
  options::Words notes;
  const RunSpec spec = resolve("--rdzv_conf join_timeout=900,close_timeout=5,is_host=true x", {}, {}, &notes);
  EXPECT_EQ(spec.rdzv_conf.at("join_timeout"), "900");
  EXPECT_EQ(spec.rdzv_conf.at("is_host"), "true");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("close_timeout=5"), std::string::npos);
}

TEST(RunResolve, NamesAKeyOfTheRendezvousThatComesTwice) {
  options::Words notes;
  EXPECT_EQ(resolve("--rdzv_conf is_host=0,is_host=1 x", {}, {}, &notes).rdzv_conf.at("is_host"), "1");
  EXPECT_EQ(notes, options::Words{"rdzv_conf = is_host=0,is_host=1 (command line): is_host stands in it twice; the last "
                                  "value, 1, holds, as with torchrun."});
}

TEST(RunResolve, NotesWhatIsSaidOfWorkersThatDoNotExist) {
  const auto notes_of = [](const std::string& line) {
    options::Words notes;
    resolve("--nproc_per_node 3 " + line + " x", {}, {}, &notes);
    return notes;
  };
  EXPECT_EQ(notes_of("--tee 0:1,7:2"),
            options::Words{"tee = 7:2 (command line) has no effect: the local ranks here are 0 to 2, each once."});
  EXPECT_EQ(notes_of("--redirects 3:1,1:2").size(), 1U);
  EXPECT_EQ(notes_of("--redirects 1:1,1:2").size(), 1U);
  EXPECT_EQ(notes_of("--local_ranks_filter 0,3,-1").size(), 2U);
  EXPECT_EQ(notes_of("--tee 0:1,2:2 --redirects 3 --local_ranks_filter 0,2"), options::Words{});
  options::Words alone;
  resolve("--tee 1:3 x", {}, {}, &alone);
  EXPECT_EQ(alone, options::Words{"tee = 1:3 (command line) has no effect: the only local rank here is 0."});
}

TEST(RunResolve, AnEmptyLogFolderIsATemporaryOneAsWithTorchrun) {
  options::Words notes;
  EXPECT_EQ(resolve("--log_dir= x", {}, {}, &notes).output.log_dir, std::nullopt);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("log_dir = '' (command line) has no effect: it is empty"), std::string::npos) << notes[0];
}

TEST(RunResolve, ReadsSignalsAndTimes) {
  EXPECT_EQ(resolve("x").signals, (std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
  EXPECT_EQ(resolve("x").shutdown_timeout, std::chrono::seconds(30));
  EXPECT_EQ(resolve("x", {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}}).shutdown_timeout, std::chrono::seconds(7));
  EXPECT_EQ(resolve("--shutdown_timeout 2 x", {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}}).shutdown_timeout,
            std::chrono::seconds(2));
  options::Words notes;
  EXPECT_EQ(resolve("--signals_to_handle SIGUSR1,SIGNONE,SIGKILL x", {}, {}, &notes).signals,
            std::vector<int>{SIGUSR1});
  EXPECT_EQ(notes.size(), 2U);
  EXPECT_TRUE(resolve("x", {{"LOCKSTEP_EXIT_CODE_COMPAT", "1"}}).exit_code_is_one);
}

TEST(RunResolve, ReadsTheOutputRules) {
  const RunSpec spec = resolve("--nproc_per_node 12 --tee 0:3,11:1 --redirects 2 --local_ranks_filter 0,11 "
                               "--duplicate_stdout_filters a,,b,c --log_dir logs x");
  EXPECT_EQ(spec.output.tee[0], Streams::Both);
  EXPECT_EQ(spec.output.tee[11], Streams::Out);
  EXPECT_EQ(spec.output.tee[1], Streams::None);
  EXPECT_EQ(spec.output.redirects[5], Streams::Err);
  EXPECT_EQ(spec.output.console_ranks, (std::vector<int>{0, 11}));
  EXPECT_EQ(spec.output.stdout_filters, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(spec.output.log_dir, fs::path("logs"));
  EXPECT_EQ(resolve("x", {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "$rank "}}).output.prefix_template, "$rank ");
}

TEST(RunProgram, IsFoundAndRefusedByName) {
  const TempFolder folder("launch-test");
  const std::string here = folder.path().string();
  const auto make = [&](const std::string& name, mode_t mode) {
    write_file_atomically(folder.path() / name, "#!/bin/sh\n");
    fs::permissions(folder.path() / name, static_cast<fs::perms>(mode));
    return here + "/" + name;
  };
  const std::string tool = make("tool", 0755);
  const std::string plain = make("plain", 0644);
  const std::string script = make("train.py", 0644);
  const std::string python = make("python3", 0755);
  const Environment environment = {{"PATH", "/nowhere:" + here}};
  const auto resolved = [&](const std::string& line, Environment more = {}) {
    more.insert(environment.begin(), environment.end());
    return resolve_program(parse_line(line), more);
  };
  EXPECT_EQ(resolved("tool a b"), (std::vector<std::string>{tool, "a", "b"}));
  EXPECT_EQ(resolved(tool), std::vector<std::string>{tool});
  EXPECT_EQ(resolved(script + " -x"), (std::vector<std::string>{python, "-u", script, "-x"}));
  EXPECT_EQ(resolved("-m pkg.mod 1"), (std::vector<std::string>{python, "-u", "-m", "pkg.mod", "1"}));
  EXPECT_EQ(resolved(script, {{"PYTHON_EXEC", tool}}), (std::vector<std::string>{tool, "-u", script}));
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {here + "/absent", "No such file"}, {plain, "may not be executed"}, {here, "is a folder"},
           {"absent", "neither here nor on PATH"}, {"absent.py", "No such file"},
           {"--no_python " + script, "may not be"}}) {
    EXPECT_NE(usage_error([&] { resolved(line); }).find(part), std::string::npos)
        << line << ": " << usage_error([&] { resolved(line); });
  }
  EXPECT_THROW(resolve_program(parse_line(script), {{"PATH", "/nowhere"}}), Error);
}

TEST(ThisMachine, CountsVisibleGpus) {
  EXPECT_EQ(this_machine({{"CUDA_VISIBLE_DEVICES", "0,3"}}).num_gpus, 2);
  EXPECT_EQ(this_machine({{"CUDA_VISIBLE_DEVICES", ""}}).num_gpus, std::nullopt);
  EXPECT_GE(this_machine({}).num_cpus, 1);
  EXPECT_NE(this_machine({}).fresh_id, this_machine({}).fresh_id);
  EXPECT_EQ(this_machine({}).fresh_id.size(), 36U);
}

}  // namespace
}  // namespace lockstep::launch
