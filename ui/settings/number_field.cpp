#include "ui/settings/number_field.h"

#include <algorithm>

#include <QCoreApplication>

namespace longhand::ui {

QLocale numberLocale() { return QLocale(QLocale::English, QLocale::UnitedStates); }

QString correctionText(double typed, double least, double most, int decimals) {
  const auto number = [decimals](double value) {
    return numberLocale().toString(value, 'f', decimals);
  };
  return typed > most
             ? QCoreApplication::translate("NumberField", "%1 is too much: %2 is the most.")
                   .arg(number(typed), number(most))
             : QCoreApplication::translate("NumberField", "%1 is too little: %2 is the least.")
                   .arg(number(typed), number(least));
}

std::optional<double> typedNumber(QString text, bool isWhole) {
  text.remove(numberLocale().groupSeparator());
  const bool isPlain = std::all_of(text.cbegin(), text.cend(), [isWhole](QChar c) {
    return (c >= u'0' && c <= u'9') || (!isWhole && c == u'.');
  });
  bool isNumber = false;
  const double number = text.toDouble(&isNumber);
  return isPlain && isNumber ? std::optional(number) : std::nullopt;
}

}  // namespace longhand::ui
