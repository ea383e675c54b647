#include "lockstep/launch/slurm_conf.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(SlurmConf, ReadsWhatMatters) {
  const SlurmConf conf = parse_slurm_conf(
      "ClusterName=x\n  killwait = 45  # seconds\n#KillWait=1\nKillOnBadExit=1\r\n"
      "AuthInfo=cred_expire=10,socket=/run/other.socket,ttl=60\nNodeName=n[0-1] CPUs=4\n");
  EXPECT_EQ(conf.kill_wait, Milliseconds(45'000));
  EXPECT_EQ(conf.kill_on_bad_exit, 1);
  EXPECT_EQ(conf.munge_socket, "/run/other.socket");
}

TEST(SlurmConf, WhatIsMissingOrOddIsAbsent) {
  const SlurmConf conf = parse_slurm_conf("KillWait=soon\nAuthInfo=cred_expire=10\nnonsense\n=\n");
  EXPECT_EQ(conf.kill_wait, std::nullopt);
  EXPECT_EQ(conf.kill_on_bad_exit, std::nullopt);
  EXPECT_EQ(conf.munge_socket, "");
  EXPECT_EQ(parse_slurm_conf("AuthInfo=/run/old.socket").munge_socket, "/run/old.socket");
}

TEST(SlurmConf, IsReadFromWhereTheEnvironmentSays) {
  const TempFolder folder("slurm-conf-test");
  write_file_atomically(folder.path() / "slurm.conf", "KillWait=7\n");
  EXPECT_EQ(read_slurm_conf({{"SLURM_CONF", folder.path() / "slurm.conf"}}).kill_wait, Milliseconds(7000));
}

}  // namespace
}  // namespace lockstep::launch
