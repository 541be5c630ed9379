#pragma once
// Finds stop texts in text that arrives in pieces, and holds back just what could still become one.
//
//   StopTextScanner scanner({"User:", "\n\n"});
//   while (more) { show(scanner.append(piece)); if (scanner.isHit()) break; }
//   show(scanner.finish());
//
// The result does not depend on how the text is cut into pieces: the stop text that is complete
// first ends the text; of several that end at the same byte, the longest. Text held back is a whole
// number of characters where pieces and stop texts are.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace longhand::engine {

class StopTextScanner {
 public:
  /// Empty stop texts are ignored.
  explicit StopTextScanner(const std::vector<std::string>& stopTexts);

  /// The text that is now known not to belong to a stop text. After a hit: nothing, ever.
  std::string append(std::string_view text);
  /// A stop text stood in the text; what was returned ends before it.
  bool isHit() const { return isHit_; }
  /// What was held back, when the text ends without a hit. The scanner is then as new.
  std::string finish();

 private:
  /// Knuth, Morris and Pratt (1977): time is linear in the text.
  struct Pattern {
    std::string text;
    std::vector<std::size_t> border;  // [size + 1] longest proper prefix that is a suffix
    std::size_t nMatched = 0;         // bytes of `text` that the input now ends with
  };

  std::vector<Pattern> patterns_;
  std::string held_;  // the input's last bytes: the longest prefix of a stop text
  bool isHit_ = false;
};

}  // namespace longhand::engine
