package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	a, err := parse([]string{"-again=/tests/front$", "-race", "-timeout", "10m", "--", "./a", "./b"})
	require.NoError(t, err)
	require.Equal(t, []string{"-race", "-timeout", "10m"}, a.flags)
	require.Equal(t, []string{"./a", "./b"}, a.packages)
	require.True(t, a.again.MatchString("m/tests/front"))
	a, err = parse([]string{"-race", "--", "./..."})
	require.NoError(t, err)
	require.Nil(t, a.again)
	_, err = parse([]string{"-race", "./..."})
	require.ErrorContains(t, err, "no --")
	_, err = parse([]string{"-again=(", "--", "./..."})
	require.ErrorContains(t, err, "missing closing )")
}

// again runs summary.retry over a log. second is how each test ends that is run again.
func again(t *testing.T, input string, second map[string]bool) (asked []string, out string, ok bool) {
	t.Helper()
	var b strings.Builder
	s := newSummary(&b)
	s.read(strings.NewReader(input))
	require.False(t, s.finish(false))
	ok = s.retry(arguments{again: regexp.MustCompile("^m/q$")}, func(id testID) bool {
		asked = append(asked, id.test)
		return second[id.test]
	})
	return asked, b.String(), ok
}

// fails is the log of tests of m/q that fail, and of the package with them.
func fails(tests ...string) string {
	log := ""
	for _, name := range tests {
		log += `{"Action":"output","Package":"m/q","Test":"` + name + `","Output":"no\n"}` + "\n" +
			`{"Action":"fail","Package":"m/q","Test":"` + name + `"}` + "\n"
	}
	return log + `{"Action":"fail","Package":"m/q"}` + "\n"
}

func TestSecondChance(t *testing.T) {
	asked, out, ok := again(t, fails("TestC/x", "TestC", "TestD"), map[string]bool{"TestC": true, "TestD": true})
	require.True(t, ok)
	require.Equal(t, []string{"TestC", "TestD"}, asked, "whole tests, once each")
	require.Contains(t, out, "FLAKY  m/q TestC: it failed once, above, and passed 3 times alone")
}

func TestSecondChanceMissed(t *testing.T) {
	asked, out, ok := again(t, fails("TestC", "TestD"), map[string]bool{"TestC": true})
	require.False(t, ok)
	require.Equal(t, []string{"TestC", "TestD"}, asked)
	require.Contains(t, out, "FAILED AGAIN  m/q TestD")
	require.NotContains(t, out, "FLAKY")
}

func TestNoSecondChance(t *testing.T) {
	for name, input := range map[string]string{
		"another package failed, too":    fails("TestC") + strings.ReplaceAll(fails("TestC"), "m/q", "m/p"),
		"too many":                       fails("TestA", "TestB", "TestC", "TestD"),
		"a package without its tests":    fails(),
		"a test that never ended":        fails("TestC") + `{"Action":"output","Package":"m/q","Test":"TestD","Output":"?\n"}` + "\n",
		"something that is no test":      fails("TestC") + "go: no such package\n",
		"a panic in a package elsewhere": fails("TestC") + `{"Action":"fail","Package":"m/p"}` + "\n",
	} {
		asked, _, ok := again(t, input, map[string]bool{"TestA": true, "TestB": true, "TestC": true, "TestD": true})
		require.False(t, ok, name)
		require.Empty(t, asked, name)
	}
}

// TestRunAlone runs a real test again: the one that follows this one.
func TestRunAlone(t *testing.T) {
	t.Setenv("GOTEST_FAIL", "")
	var b strings.Builder
	id := testID{"github.com/rvtsim/rvtsim/tools/gotest", "TestForRunAlone"}
	require.True(t, runAlone(&b, nil, id), b.String())
	require.Contains(t, b.String(), "3 passed, 0 failed")
	t.Setenv("GOTEST_FAIL", "yes")
	require.False(t, runAlone(&b, nil, id))
}

func TestForRunAlone(t *testing.T) {
	require.NotEqual(t, "yes", os.Getenv("GOTEST_FAIL"), "asked to fail by TestRunAlone")
}
