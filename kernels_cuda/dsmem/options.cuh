/* options.cuh: command lines that make no sense end a program before anything is done on a GPU.
   Form       --name value, each name once; values are whole numbers in a range, lists of them by commas, or words
   Refused    --help, words that are no option, unknown options, options without a value, text in the place of a number, numbers
              out of range: one line on stderr, exit status 2
   Build      header only, host */
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace ts {

enum OptionKind { NUMBER, NUMBERS, WORD };
struct Option {
  const char* name;
  OptionKind kind;
  long long low, high;  // of numbers
  const char* words;    // of a word, by spaces
};
inline Option number(const char* name, long long low, long long high) { return {name, NUMBER, low, high, ""}; }
inline Option numbers(const char* name, long long low, long long high) { return {name, NUMBERS, low, high, ""}; }
inline Option flag(const char* name) { return number(name, 0, 1); }
inline Option word(const char* name, const char* words) { return {name, WORD, 0, 0, words}; }

constexpr long long MOST_INT = 2147483647;

[[noreturn]] inline void refuse(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(2);
}
inline std::vector<std::string> parts_of(const std::string& text, char by) {
  std::vector<std::string> parts(1);
  for (char c : text)
    if (c == by) parts.emplace_back();
    else parts.back() += c;
  return parts;
}
// Decimal digits with a sign, of at most 18 digits.
inline bool is_whole(const std::string& text) {
  const size_t sign = !text.empty() && text[0] == '-';
  return text.size() > sign && text.size() <= sign + 18 && text.find_first_not_of("0123456789", sign) == std::string::npos;
}
inline std::string allowed(const Option& o) {
  if (o.kind == WORD) return std::string("one of ") + o.words;
  const std::string range = std::to_string(o.low) + " to " + std::to_string(o.high);
  return o.kind == NUMBER ? "a whole number from " + range : "whole numbers from " + range + ", by commas";
}
inline bool fits(const Option& o, const std::string& value) {
  if (o.kind == WORD) {
    for (const std::string& each : parts_of(o.words, ' '))
      if (each == value) return true;
    return false;
  }
  for (const std::string& each : parts_of(value, o.kind == NUMBERS ? ',' : '\n'))
    if (!is_whole(each) || std::stoll(each) < o.low || std::stoll(each) > o.high) return false;
  return true;
}
inline void check_options(const char* program, const std::vector<std::string>& words, const std::vector<Option>& known) {
  const std::string who = std::string(program) + ": ";
  std::string names;
  for (const Option& o : known) names += std::string(" ") + o.name;
  for (size_t i = 0; i < words.size(); i += 2) {
    const Option* found = nullptr;
    for (const Option& o : known)
      if (words[i] == o.name) found = &o;
    if (words[i] == "--help" || words[i] == "-h") refuse(who + "options, each with a value:" + names);
    if (!found) refuse(who + "no option '" + words[i] + "'; known:" + names);
    if (i + 1 == words.size()) refuse(who + found->name + " has no value; give " + allowed(*found));
    if (!fits(*found, words[i + 1])) refuse(who + found->name + " '" + words[i + 1] + "'; give " + allowed(*found));
    for (size_t k = 0; k < i; k += 2)
      if (words[k] == words[i]) refuse(who + found->name + " is given twice");
  }
}

}  // namespace ts
