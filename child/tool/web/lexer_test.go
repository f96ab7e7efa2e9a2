package web_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"nexus.internal/child/tool/web"
)

func TestTokens(t *testing.T) {
	for page, want := range map[string]string{
		"a < b &lt; c <3 &amp;c":              "a < b < c <3 &c",
		"<!-- <p> --><!--><b>x</b><!--->y":    `<b "" "" false>|x|</b>|y`,
		"<!DOCTYPE html><?xml?></ x>z</>":     "z",
		"<A HREF='a&amp;b' alt=x>t</A >":      `<a "a&b" "x" false>|t|</a>`,
		"<script>if (a<b) '</p>'</script >x":  `<script "" "" false>|</script>|x`,
		"<title>a<b>&amp;</title><svg/>":      `<title "" "" false>|a<b>&|</title>|<svg "" "" true>`,
		"<a href=x/>t<a href = 'y' href=z />": `<a "x/" "" false>|t|<a "y" "" true>`,
		"<AÓ>x<style>y</ſtyle></style>z":      "<aÓ \"\" \"\" false>|x|<style \"\" \"\" false>|</style>|z",
		"<p a a=/>x<a href=x href=y/>":        `<p "" "" false>|x|<a "x" "" false>`,
		"x<":                                  "x<",
		"x</":                                 "x</",
		"x<a href='":                          "x",
		"x<!--":                               "x",
	} {
		if got := strings.Join(web.Tokens(page), "|"); got != want {
			t.Errorf("%s: got %s, want %s", page, got, want)
		}
	}
}

// A page is taken apart as golang.org/x/net/html does, which a child does not link: it makes its
// tables before main, in each child. Left out are entities, which the standard library reads
// otherwise where they are wrong, what browsers know of comments in scripts, and values without
// quotes that end with / (slashed).
func FuzzTokens(f *testing.F) {
	for _, s := range []string{
		"<a href=x>t</a>", "<!--x--!>y-->z", "<!-->a", "<!--->b", "<p/ a=/>x", "<p a='>\"' b>x", "<title>&amp;<b></titlex></TITLE\n>", "</p a=b>x", "<p\n=a=b>", "<a =href=x>",
		"<style><p></style>", "<p a=\"x", "<?a>b", "<!a>b", "</>", "</ a>b", "<1>", "&notit;&#65", "<textarea><a></textarea/>x", "<img alt=a alt=b href='' href=c>",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, page string) {
		lower := strings.ToLower(page)
		if strings.ContainsAny(page, "\r\x00&") || strings.Contains(lower, "<plaintext") || strings.Contains(lower, "<script") && strings.Contains(lower, "<!--") || lower != strings.ToLower(strings.ToValidUTF8(page, "")) || slashed.MatchString(page) {
			return
		}
		if diff := slices.Compare(oracle(page), web.Tokens(page)); diff != 0 {
			t.Errorf("%q: got %q, want %q", page, web.Tokens(page), oracle(page))
		}
	})
}

// slashed finds <p a=b/>, whose / belongs to the value (HTML, 13.2.5.38). The oracle takes it for
// the mark of an empty element if another attribute of that name stands before it.
var slashed = regexp.MustCompile(`=[ \t\n\f]*[^ \t\n\f"'>][^ \t\n\f>]*/>|=[ \t\n\f]*/>`)

// oracle is Tokens by golang.org/x/net/html.
func oracle(page string) (all []string) {
	text, left := "", ""
	z := html.NewTokenizer(strings.NewReader(page))
	for kind := z.Next(); kind != html.ErrorToken; kind = z.Next() {
		switch t := z.Token(); kind {
		case html.TextToken:
			if left == "" || left == "title" || left == "textarea" {
				text += t.Data
			}
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			left = ""
			if text != "" {
				all, text = append(all, text), ""
			}
			if kind == html.EndTagToken {
				all = append(all, "</"+t.Data+">")
				continue
			}
			if slices.Contains([]string{"iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"}, t.Data) {
				left = t.Data
			}
			var href, alt string
			for _, a := range t.Attr {
				switch a.Key {
				case "href":
					href = a.Val
				case "alt":
					alt = a.Val
				}
			}
			all = append(all, fmt.Sprintf("<%s %q %q %t>", t.Data, href, alt, kind == html.SelfClosingTagToken))
		default:
		}
	}
	if text != "" {
		all = append(all, text)
	}
	return all
}
