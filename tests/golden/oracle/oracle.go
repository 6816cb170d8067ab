// Package oracle holds what real Linux soft-RoCE devices answered in the cases of the
// conformance suite; README.md tells how the answers were taken. Files are embedded.
package oracle

import _ "embed"

// SoftRoCE61 is the answers of Linux 6.1, one JSON object a line. It is the reference of
// profile rxe.
//
//go:embed soft-roce-6.1.jsonl
var SoftRoCE61 []byte

// SoftRoCE612 is the answers of Linux 6.12, for comparison.
//
//go:embed soft-roce-6.12.jsonl
var SoftRoCE612 []byte
