#pragma once

#include <utility>
#include <variant>

#include "weft/base/check.h"
#include "weft/base/error.h"

namespace weft {

/// A value, or the Error that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(value()); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  const Error& error() const& {
    WEFT_CHECK(!ok(), "asked for the error of a result that has a value");
    return std::get<1>(state_);
  }
  Error&& error() && {
    WEFT_CHECK(!ok(), "asked for the error of a result that has a value");
    return std::get<1>(std::move(state_));
  }

 private:
  const T& value() const {
    WEFT_CHECK(ok(), "asked for the value of a failed result: {}", std::get<1>(state_).message());
    return std::get<0>(state_);
  }
  T& value() { return const_cast<T&>(std::as_const(*this).value()); }

  std::variant<T, Error> state_;
};

}  // namespace weft

#define WEFT_CONCAT_INNER(a, b) a##b
#define WEFT_CONCAT(a, b) WEFT_CONCAT_INNER(a, b)

/// WEFT_TRY(const Model model, read_model(path)): declares `model`, or returns the error from the enclosing function.
#define WEFT_TRY(declaration, expression)                                                                  \
  auto WEFT_CONCAT(weft_result_, __LINE__) = (expression);                                                 \
  if (!WEFT_CONCAT(weft_result_, __LINE__)) return std::move(WEFT_CONCAT(weft_result_, __LINE__)).error(); \
  declaration = *std::move(WEFT_CONCAT(weft_result_, __LINE__))
