package manpage_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nexus.internal/cmd/internal/manpage"
)

// What a text says is not taken for a request of roff, and examples stay as they are.
func TestRender(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.StringP("name", "n", "it's", "the `NAME` of it")
	flags.Bool("secret", false, "")
	if err := flags.MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	got := manpage.Render(manpage.Page{
		Program: "do-it", Summary: "Does it", Synopsis: []string{"do-it VERB"}, Flags: flags,
		About: ".config is a name,\nand so is 'x'.\n\nSo:\n  echo \\n -x\n    y\nEnd.",
		Verbs: []manpage.Verb{{Use: `say "no"`, About: "Says it.", Flags: pflag.NewFlagSet("", pflag.ContinueOnError)}},
		Also:  []manpage.Section{{Title: "FILES", Entries: []manpage.Entry{{Word: "~/x", About: "a file"}}}},
	})
	want := `.TH "DO\-IT" "1" "" "nexus" "User Commands"
.ad l
.SH "NAME"
do\-it \- does it
.SH "SYNOPSIS"
\fBdo\-it\fR \fIVERB\fR
.SH "DESCRIPTION"
\&.config is a name,
and so is \(aqx\(aq.
.PP
So:
.PP
.nf
.RS
echo \en \-x
  y
.RE
.fi
.PP
End.
.SH "OPTIONS"
.TP
\fB\-n\fR, \fB\-\-name\fR \fINAME\fR
the NAME of it (default it\(aqs)
.SH "VERBS"
.SS "say \(dqno\(dq"
Says it.
.SH "FILES"
.TP
\fB\(ti/x\fR
a file
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the page (-want +got):\n%s", diff)
	}
}

// A verb has its own flags, and those of all verbs are named once.
func TestVerbs(t *testing.T) {
	root := &cobra.Command{Use: "it VERB", Short: "Does it"}
	root.PersistentFlags().Int("port", 0, "port")
	verb := &cobra.Command{Use: "keys", Short: "List keys", Run: func(*cobra.Command, []string) {}}
	below := &cobra.Command{Use: "revoke KEY_ID [FLAGS]", Short: "End one", Run: verb.Run}
	below.Flags().Bool("now", false, "at once")
	verb.AddCommand(below)
	root.AddCommand(verb, &cobra.Command{Use: "inner", Hidden: true, Run: verb.Run}, &cobra.Command{Use: "away", Run: verb.Run})
	page := manpage.Verbs(root, manpage.Page{}, func(cmd *cobra.Command) bool { return cmd.Name() == "away" })
	var got []string
	for _, v := range page.Verbs {
		said := v.Use + ": " + v.About
		v.Flags.VisitAll(func(f *pflag.Flag) { said += " --" + f.Name })
		got = append(got, said)
	}
	want := []string{"keys: List keys.", "keys revoke KEY_ID: End one. --now"}
	if diff := cmp.Diff(want, got[:min(len(got), len(want))]); diff != "" || strings.Contains(strings.Join(got, " "), "inner") {
		t.Errorf("the verbs %q (-want +got):\n%s", got, diff)
	}
	if page.Program != "it" || page.Flags.Lookup("port") == nil {
		t.Errorf("the page is of %q, its flags are\n%s", page.Program, page.Flags.FlagUsages())
	}
}
