// Package explain puts failures into words: a failed completion with the history of its
// work request, a refused call, a status, a cause code, an errno, an event. The texts are
// for somebody who wrote a verbs program and has not read this simulator.
package explain
