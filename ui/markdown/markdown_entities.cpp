#include "ui/markdown/markdown_entities.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace longhand::ui {
namespace {

using Entry = std::pair<std::string_view, char16_t>;

// The names that people and models write; HTML has 2,231.
constexpr std::array kEntities = {
    Entry{"Alpha", u'Α'},     Entry{"Beta", u'Β'},     Entry{"Delta", u'Δ'},
    Entry{"Gamma", u'Γ'},     Entry{"Lambda", u'Λ'},   Entry{"Omega", u'Ω'},
    Entry{"Phi", u'Φ'},       Entry{"Pi", u'Π'},       Entry{"Psi", u'Ψ'},
    Entry{"Sigma", u'Σ'},     Entry{"Theta", u'Θ'},    Entry{"agrave", u'à'},
    Entry{"aacute", u'á'},    Entry{"alpha", u'α'},    Entry{"amp", u'&'},
    Entry{"apos", u'\''},     Entry{"approx", u'≈'},   Entry{"asymp", u'≈'},
    Entry{"auml", u'ä'},      Entry{"beta", u'β'},     Entry{"bull", u'•'},
    Entry{"cap", u'∩'},       Entry{"ccedil", u'ç'},   Entry{"cent", u'¢'},
    Entry{"chi", u'χ'},       Entry{"copy", u'©'},     Entry{"cup", u'∪'},
    Entry{"dagger", u'†'},    Entry{"darr", u'↓'},     Entry{"deg", u'°'},
    Entry{"delta", u'δ'},     Entry{"divide", u'÷'},   Entry{"eacute", u'é'},
    Entry{"egrave", u'è'},    Entry{"empty", u'∅'},    Entry{"emsp", u'\u2003'},
    Entry{"ensp", u'\u2002'}, Entry{"epsilon", u'ε'},  Entry{"equiv", u'≡'},
    Entry{"eta", u'η'},       Entry{"euro", u'€'},     Entry{"exist", u'∃'},
    Entry{"forall", u'∀'},    Entry{"frac12", u'½'},   Entry{"frac14", u'¼'},
    Entry{"gamma", u'γ'},     Entry{"ge", u'≥'},       Entry{"gt", u'>'},
    Entry{"hArr", u'⇔'},      Entry{"harr", u'↔'},     Entry{"hearts", u'♥'},
    Entry{"hellip", u'…'},    Entry{"iexcl", u'¡'},    Entry{"infin", u'∞'},
    Entry{"int", u'∫'},       Entry{"iquest", u'¿'},   Entry{"isin", u'∈'},
    Entry{"lArr", u'⇐'},      Entry{"lambda", u'λ'},   Entry{"laquo", u'«'},
    Entry{"larr", u'←'},      Entry{"ldquo", u'“'},    Entry{"le", u'≤'},
    Entry{"lsquo", u'‘'},     Entry{"lt", u'<'},       Entry{"mdash", u'—'},
    Entry{"micro", u'µ'},     Entry{"middot", u'·'},   Entry{"minus", u'−'},
    Entry{"mu", u'μ'},        Entry{"nabla", u'∇'},    Entry{"nbsp", u'\u00a0'},
    Entry{"ndash", u'–'},     Entry{"ne", u'≠'},       Entry{"not", u'¬'},
    Entry{"notin", u'∉'},     Entry{"ntilde", u'ñ'},   Entry{"nu", u'ν'},
    Entry{"omega", u'ω'},     Entry{"ouml", u'ö'},     Entry{"para", u'¶'},
    Entry{"part", u'∂'},      Entry{"permil", u'‰'},   Entry{"phi", u'φ'},
    Entry{"pi", u'π'},        Entry{"plusmn", u'±'},   Entry{"pound", u'£'},
    Entry{"prime", u'′'},     Entry{"prod", u'∏'},     Entry{"psi", u'ψ'},
    Entry{"quot", u'"'},      Entry{"rArr", u'⇒'},     Entry{"radic", u'√'},
    Entry{"raquo", u'»'},     Entry{"rarr", u'→'},     Entry{"rdquo", u'”'},
    Entry{"reg", u'®'},       Entry{"rho", u'ρ'},      Entry{"rsquo", u'’'},
    Entry{"sect", u'§'},      Entry{"shy", u'\u00ad'}, Entry{"sigma", u'σ'},
    Entry{"sub", u'⊂'},       Entry{"sum", u'∑'},      Entry{"sup", u'⊃'},
    Entry{"sup2", u'²'},      Entry{"sup3", u'³'},     Entry{"szlig", u'ß'},
    Entry{"tau", u'τ'},       Entry{"theta", u'θ'},    Entry{"thinsp", u'\u2009'},
    Entry{"times", u'×'},     Entry{"trade", u'™'},    Entry{"uarr", u'↑'},
    Entry{"uuml", u'ü'},      Entry{"xi", u'ξ'},       Entry{"yen", u'¥'},
    Entry{"zeta", u'ζ'},
};

QString decodeNumber(std::string_view digits, int base) {
  std::uint32_t code = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
  const bool bad = error != std::errc() || end != digits.data() + digits.size() || code == 0 ||
                   code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff);
  const char32_t character = bad ? U'\ufffd' : static_cast<char32_t>(code);
  return QString::fromUcs4(&character, 1);
}

}  // namespace

QString decodeEntity(std::string_view entity) {
  if (entity.size() > 3 && entity.front() == '&' && entity.back() == ';') {
    const std::string_view name = entity.substr(1, entity.size() - 2);
    if (name[0] == '#') {
      const bool hex = name.size() > 2 && (name[1] == 'x' || name[1] == 'X');
      return decodeNumber(name.substr(hex ? 2 : 1), hex ? 16 : 10);
    }
    const auto* found = std::find_if(kEntities.begin(), kEntities.end(),
                                     [&](const Entry& entry) { return entry.first == name; });
    if (found != kEntities.end()) return QString(QChar(found->second));
  }
  return QString::fromUtf8(entity.data(), static_cast<qsizetype>(entity.size()));
}

}  // namespace longhand::ui
