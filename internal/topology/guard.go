package topology

import (
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// The YAML parser recurses, and takes quadratic time in the depth of nesting, in the
// width of mappings and in the length of runs of words. Its lexer needs linear time.
// So the tokens are looked at first. No file that fits the schema comes near these
// bounds.
const (
	maxNesting = 64
	maxKeys    = 500
	maxScalars = 500
	maxTokens  = 400_000 // ten thousand nodes with a flow each have half as many
)

// checkText refuses what is no text, before the lexer sees it.
func checkText(name string, b []byte) *Problem {
	line, column := 1, 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		column++
		switch {
		case r == utf8.RuneError && n == 1:
			return &Problem{name, line, column, "", fmt.Sprintf("found byte 0x%02x, which is not UTF-8 text; expected YAML", b[i])}
		case r == 0:
			return &Problem{name, line, column, "", "found a NUL byte; expected YAML"}
		case r == '\n', r == '\r' && !(i+1 < len(b) && b[i+1] == '\n'):
			line, column = line+1, 0
		}
		i += n
	}
	return nil
}

// tokenGuard counts while it goes through the tokens of a file.
type tokenGuard struct {
	blocks  []width // open block mappings, by column
	flows   []width // open brackets
	entries int     // list entries that begin on this line
	line    int
	words   int // tokens since the last one that gives structure
	column  int // of the token before
}

// width is how many keys a mapping has so far.
type width struct{ column, keys int }

// checkTokens returns the first place where a bound is passed.
func checkTokens(name string, tokens token.Tokens) *Problem {
	var g tokenGuard
	for i, t := range tokens {
		message := g.step(t)
		if i >= maxTokens {
			message = fmt.Sprintf("found more than %d words and signs; expected a smaller file", maxTokens)
		}
		if message == "" {
			continue
		}
		return &Problem{name, t.Position.Line, t.Position.Column, "", message}
	}
	return nil
}

// step takes one token and says which bound it passes, if any.
func (g *tokenGuard) step(t *token.Token) string {
	if t.Position.Line != g.line {
		g.line, g.entries = t.Position.Line, 0
	}
	g.words++
	keys := 0
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		g.flows = append(g.flows, width{})
		g.words = 0
	case token.SequenceEndType, token.MappingEndType:
		g.flows = g.flows[:max(len(g.flows)-1, 0)]
		g.words = 0
	case token.SequenceEntryType, token.MappingKeyType:
		g.entries++
		g.words = 0
		g.closeBlocks(t.Position.Column)
	case token.CollectEntryType:
		g.words = 0
	case token.MappingValueType:
		keys = g.addKey()
		g.words = 0
	}
	g.column = t.Position.Column
	switch {
	case len(g.flows) > maxNesting || len(g.blocks) > maxNesting || g.entries > maxNesting:
		return fmt.Sprintf("found more than %d levels of nesting; expected at most 8", maxNesting)
	case keys > maxKeys:
		return fmt.Sprintf("found a mapping of more than %d keys; expected at most 30", maxKeys)
	case g.words > maxScalars:
		return "not valid YAML: too many words or anchors in a row"
	}
	return ""
}

// closeBlocks forgets the block mappings that are indented deeper than column.
func (g *tokenGuard) closeBlocks(column int) {
	for len(g.blocks) > 0 && g.blocks[len(g.blocks)-1].column > column {
		g.blocks = g.blocks[:len(g.blocks)-1]
	}
}

// addKey counts the key before a ':' and returns how many its mapping has now.
func (g *tokenGuard) addKey() int {
	if n := len(g.flows); n > 0 {
		g.flows[n-1].keys++
		return g.flows[n-1].keys
	}
	g.closeBlocks(g.column)
	if n := len(g.blocks); n == 0 || g.blocks[n-1].column < g.column {
		g.blocks = append(g.blocks, width{column: g.column})
	}
	last := &g.blocks[len(g.blocks)-1]
	last.keys++
	return last.keys
}
