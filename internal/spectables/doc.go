// Package spectables holds the tables of spec/tables against the code. Each table is a
// YAML file of one schema (spec/tables/README.md). Columns that the code knows are derived
// from it; the others are written by hand and say what no code does. The test compares
// both ways: no row may be missing from either side.
//
//	go test ./internal/spectables -update   # rewrite what is derived, keep the rest
package spectables
