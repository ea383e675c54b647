#include "lockstep/launch/supervisor.h"

#include <gtest/gtest.h>

#include <csignal>
#include <ostream>

namespace lockstep::launch {

void PrintTo(const Action& action, std::ostream* stream) {
  *stream << "what " << static_cast<int>(action.what) << " rank " << action.rank << " signal " << action.signal
          << " span " << action.span.count() << " ms";
}

namespace {

using What = Action::What;
using Actions = std::vector<Action>;
using namespace std::chrono_literals;

/// A supervisor whose event loop turns every 100 ms; ranks in `beating` send a beat each time.
struct Scene {
  explicit Scene(int num_workers, GroupTimeouts timeouts = {}) : supervisor(num_workers, timeouts, 0ms) {}

  Actions turn(Milliseconds step = 100ms) {
    now += step;
    supervisor.advance(now);
    for (const int rank : beating) supervisor.heard(rank);
    for (const int rank : supervisor.suspects()) {
      if (rank == starving) supervisor.runnable(rank);
    }
    return supervisor.tick();
  }
  /// Turns until something is to be done, at most for `span`.
  Actions turn_for(Milliseconds span) {
    const Milliseconds end = now + span;
    while (now < end) {
      if (Actions actions = turn(); !actions.empty()) return actions;
    }
    return {};
  }
  static Action signal(int rank, int number) { return {.what = What::Signal, .rank = rank, .signal = number}; }

  Milliseconds now{0};
  std::vector<int> beating;
  int starving = -1;
  Supervisor supervisor;
};

TEST(Supervisor, LeavesBeatingWorkersAlone) {
  Scene scene(2);
  scene.beating = {0, 1};
  EXPECT_EQ(scene.turn_for(200s), Actions{});
}

TEST(Supervisor, SuspectsAtOnePointFiveSecondsAndGivesUpAtFive) {
  Scene scene(2);
  scene.beating = {0, 1};
  scene.turn();
  scene.beating = {0};
  EXPECT_EQ(scene.turn_for(60s), (Actions{{.what = What::Suspect, .rank = 1, .span = 1500ms}}));
  EXPECT_EQ(scene.now, 1600ms);
  EXPECT_EQ(scene.turn_for(60s), (Actions{{.what = What::Silent, .rank = 1, .span = 5000ms},
                                          Scene::signal(0, SIGTERM), Scene::signal(1, SIGKILL)}));
  EXPECT_EQ(scene.now, 5100ms);
}

TEST(Supervisor, ASuspectThatIsHeardAgainIsReported) {
  Scene scene(1);
  scene.beating = {0};
  scene.turn();
  scene.beating = {};
  scene.turn_for(60s);
  scene.beating = {0};
  EXPECT_EQ(scene.turn(), (Actions{{.what = What::Recovered, .rank = 0, .span = 1600ms}}));
  EXPECT_EQ(scene.turn_for(60s), Actions{});
}

TEST(Supervisor, WaitsLongerForWhoIsReadyToRun) {
  Scene scene(1);
  scene.beating = {0};
  scene.turn();
  scene.beating = {};
  scene.starving = 0;
  EXPECT_EQ(scene.turn_for(60s), (Actions{{.what = What::Suspect, .rank = 0, .span = 1500ms}}));
  EXPECT_EQ(scene.turn_for(60s), (Actions{{.what = What::Silent, .rank = 0, .span = 60s}, Scene::signal(0, SIGKILL)}));
}

TEST(Supervisor, WhoWasReadyToRunAndIsNoMoreHasNoLongerTime) {
  Scene scene(1);
  scene.beating = {0};
  scene.turn();
  scene.beating = {};
  scene.starving = 0;
  scene.turn_for(60s);
  EXPECT_EQ(scene.turn_for(20s), Actions{});
  scene.starving = -1;
  EXPECT_EQ(scene.turn_for(1400ms), Actions{});
  EXPECT_EQ(scene.turn().front().what, What::Silent);
}

TEST(Supervisor, DoesNotCountTimeInWhichItWasNotRunning) {
  Scene scene(1);
  scene.beating = {0};
  scene.turn();
  scene.beating = {};
  EXPECT_EQ(scene.turn(3600s), Actions{});
  // Of the hour 200 ms counted: the rest of the 1.5 s must still pass.
  EXPECT_EQ(scene.turn_for(1200ms), Actions{});
  EXPECT_EQ(scene.turn(), (Actions{{.what = What::Suspect, .rank = 0, .span = 1500ms}}));
}

TEST(Supervisor, NamesWhoDidNotStart) {
  Scene scene(3);
  scene.beating = {1};
  for (const Milliseconds at : {5s, 10s, 20s, 40s}) {
    EXPECT_EQ(scene.turn_for(60s), (Actions{{.what = What::Waiting, .span = at}}));
  }
  EXPECT_EQ(scene.supervisor.ranks_missing(), (std::vector<int>{0, 2}));
  EXPECT_EQ(scene.supervisor.ranks_present(), (std::vector<int>{1}));
  EXPECT_EQ(scene.turn_for(60s), (Actions{{.what = What::NotStarted, .rank = 0, .span = 60s},
                                          {.what = What::NotStarted, .rank = 2, .span = 60s},
                                          Scene::signal(0, SIGTERM), Scene::signal(1, SIGTERM),
                                          Scene::signal(2, SIGTERM)}));
}

TEST(Supervisor, AFailureStopsTheOthersAtOnceAndKillsAfterTheGrace) {
  Scene scene(3);
  scene.beating = {0, 1, 2};
  scene.turn();
  scene.supervisor.ended(1, EndClass::Failure);
  scene.beating = {0, 2};
  EXPECT_EQ(scene.turn(), (Actions{Scene::signal(0, SIGTERM), Scene::signal(2, SIGTERM)}));
  scene.supervisor.ended(0, EndClass::Orderly);
  const Milliseconds stopped = scene.now;
  EXPECT_EQ(scene.turn_for(60s), Actions{Scene::signal(2, SIGKILL)});
  EXPECT_EQ(scene.now - stopped, 3s);
  EXPECT_FALSE(scene.supervisor.all_ended());
  EXPECT_EQ(scene.turn_for(60s), (Actions{{.what = What::Unkillable, .rank = 2}}));
  EXPECT_EQ(scene.now - stopped, 13s);
  EXPECT_TRUE(scene.supervisor.all_ended());
}

TEST(Supervisor, WaitsAMomentForTheCauseOfAConsequence) {
  Scene scene(3);
  scene.beating = {0, 1, 2};
  scene.turn();
  scene.supervisor.failed(0, EndClass::Consequence);
  const Milliseconds told = scene.now;
  EXPECT_EQ(scene.turn_for(60s), (Actions{Scene::signal(1, SIGTERM), Scene::signal(2, SIGTERM)}))
      << "the one that said it failed ends by itself";
  EXPECT_EQ(scene.now - told, 500ms);
}

TEST(Supervisor, ACauseThatComesEndsTheWait) {
  Scene scene(3);
  scene.beating = {0, 1, 2};
  scene.turn();
  scene.supervisor.ended(0, EndClass::Consequence);
  EXPECT_EQ(scene.turn(), Actions{});
  scene.supervisor.ended(1, EndClass::Failure);
  EXPECT_EQ(scene.turn(), Actions{Scene::signal(2, SIGTERM)});
}

TEST(Supervisor, PassesTheFirstSignalOnAndKillsOnTheSecond) {
  Scene scene(2);
  scene.beating = {0, 1};
  scene.turn();
  EXPECT_EQ(scene.supervisor.interrupt(SIGINT), (Actions{Scene::signal(0, SIGINT), Scene::signal(1, SIGINT)}));
  EXPECT_EQ(scene.turn_for(20s), Actions{});
  EXPECT_EQ(scene.supervisor.interrupt(SIGINT), (Actions{Scene::signal(0, SIGKILL), Scene::signal(1, SIGKILL)}));
  EXPECT_EQ(scene.supervisor.interrupted_by(), SIGINT);
}

TEST(Supervisor, AnInterruptedGroupHasItsGraceAndAFailureShortensIt) {
  Scene patient(1);
  patient.turn();
  patient.supervisor.interrupt(SIGTERM);
  EXPECT_EQ(patient.turn_for(60s), Actions{Scene::signal(0, SIGKILL)});
  EXPECT_EQ(patient.now, 25'100ms);

  Scene failing(2);
  failing.turn();
  failing.supervisor.interrupt(SIGTERM);
  failing.supervisor.ended(0, EndClass::Failure);
  EXPECT_EQ(failing.turn_for(60s), Actions{Scene::signal(1, SIGKILL)}) << "no second SIGTERM";
  EXPECT_EQ(failing.now, 3'200ms);
}

TEST(Supervisor, OrderlyEndsStopNobody) {
  Scene scene(2);
  scene.beating = {0, 1};
  scene.turn();
  scene.supervisor.ended(0, EndClass::Orderly);
  scene.beating = {1};
  EXPECT_EQ(scene.turn_for(60s), Actions{});
  scene.supervisor.ended(1, EndClass::Orderly);
  EXPECT_TRUE(scene.supervisor.all_ended());
}

TEST(Supervisor, WithoutBeatsSilenceMeansNothing) {
  Supervisor supervisor(2, GroupTimeouts{}, Milliseconds(0), Supervisor::Beats::None);
  for (int now = 0; now < 200'000; now += 100) {
    supervisor.advance(Milliseconds(now));
    ASSERT_TRUE(supervisor.tick().empty()) << now;
    ASSERT_FALSE(supervisor.next_tick().has_value());
  }
}

TEST(Supervisor, StopsOnRequestAndKillsAfterTheGrace) {
  Supervisor supervisor(2, GroupTimeouts{}, Milliseconds(0), Supervisor::Beats::None);
  supervisor.ended(0, EndClass::Orderly);
  EXPECT_EQ(supervisor.stop(SIGTERM, Milliseconds(400)),
            (std::vector<Action>{{.what = Action::What::Signal, .rank = 1, .signal = SIGTERM}}));
  EXPECT_EQ(supervisor.next_tick(), Milliseconds(400));
  // A second call sends nothing again, and can only shorten the grace.
  EXPECT_TRUE(supervisor.stop(SIGTERM, Milliseconds(900)).empty());
  EXPECT_EQ(supervisor.next_tick(), Milliseconds(400));
  EXPECT_TRUE(supervisor.stop(SIGTERM, Milliseconds(100)).empty());
  supervisor.advance(Milliseconds(99));
  EXPECT_TRUE(supervisor.tick().empty());
  supervisor.advance(Milliseconds(100));
  EXPECT_EQ(supervisor.tick(), (std::vector<Action>{{.what = Action::What::Signal, .rank = 1, .signal = SIGKILL}}));
}

}  // namespace
}  // namespace lockstep::launch
