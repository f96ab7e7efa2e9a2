package web

// ToText is toText.
var ToText = toText
