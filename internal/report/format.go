package report

import (
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// significant prints x with three significant digits and no exponent: 1.23, 12.3,
// 123, 1234.
func significant(x float64) string {
	switch {
	case x < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
}

// scaled divides x by step until it is below limit, and appends the unit reached.
func scaled(x, step float64, units []string) string {
	i := 0
	for i < len(units)-1 && math.Round(x) >= step {
		x /= step
		i++
	}
	if i == 0 && x == math.Trunc(x) {
		return strconv.FormatFloat(x, 'f', 0, 64) + units[0]
	}
	return significant(x) + units[i]
}

// formatBytes takes at most 8 columns below 1 EiB.
func formatBytes(n uint64) string {
	return scaled(float64(n), 1024, []string{" B", " KiB", " MiB", " GiB", " TiB", " PiB"})
}

// formatRate takes at most 9 columns below 1000 Tb/s.
func formatRate(bitsPerSecond int64) string {
	return scaled(float64(bitsPerSecond), 1000, []string{" b/s", " kb/s", " Mb/s", " Gb/s", " Tb/s"})
}

// formatNanos takes at most 6 columns below 1000 s.
func formatNanos(ns int64) string {
	return scaled(float64(ns), 1000, []string{"ns", "us", "ms", "s"})
}

func formatDuration(d time.Duration) string { return formatNanos(int64(d)) }

// formatCount takes at most 7 columns below 10^15.
func formatCount(n uint64) string {
	if n < 10_000_000 {
		return strconv.FormatUint(n, 10)
	}
	return scaled(float64(n), 1000, []string{"", "k", "M", "G", "T"})
}

// truncate shortens s to at most width columns.
func truncate(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + "…"
}

// wrapWords is wrapItems for text.
func wrapWords(label, text string, width int) string {
	var b strings.Builder
	b.WriteString(label)
	indent := utf8.RuneCountInString(label)
	column := indent
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
	return b.String()
}

// wrapItems prints "label a, b, c" in lines of at most width columns; following
// lines are indented to where the items start.
func wrapItems(label string, items []string, width int) string {
	var b strings.Builder
	b.WriteString(label)
	indent := utf8.RuneCountInString(label)
	column := indent
	for i, item := range items {
		if i < len(items)-1 {
			item += ","
		}
		n := utf8.RuneCountInString(item)
		if i > 0 {
			if column+1+n > width {
				b.WriteString("\n" + strings.Repeat(" ", indent))
				column = indent
			} else {
				b.WriteByte(' ')
				column++
			}
		}
		b.WriteString(item)
		column += n
	}
	b.WriteByte('\n')
	return b.String()
}

// Bytes, Rate, Duration and Count print quantities as the tables of this package do:
// with three significant digits and the unit that suits.
func Bytes(n uint64) string { return formatBytes(n) }

// Rate prints bits per second.
func Rate(bitsPerSecond int64) string { return formatRate(bitsPerSecond) }

// Duration prints a duration.
func Duration(d time.Duration) string { return formatDuration(d) }

// Count prints a number.
func Count(n uint64) string { return formatCount(n) }
