#pragma once

namespace weft::unicode_tables {

// Categories and forms of characters, packed as scripts/make_unicode_tables.py says. characters.cpp unpacks them.
extern const char* const kLetters;
extern const char* const kUpperLetters;
extern const char* const kLowerLetters;
extern const char* const kNumbers;
extern const char* const kMarks;
extern const char* const kSpaces;
extern const char* const kWords;
extern const char* const kCanonical;
extern const char* const kCompatible;
extern const char* const kClasses;
extern const char* const kCompositions;

}  // namespace weft::unicode_tables
