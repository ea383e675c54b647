#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::text {

/// `action` throws an Error of this kind whose message holds all these words.
template <class Action>
void expect_error(ErrorKind kind, std::initializer_list<std::string> words, Action action) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one with: " << *words.begin();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.kind()), name(kind)) << error.what();
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what() << "\nlacks: " << word;
    }
  }
}

}  // namespace lockstep::text
