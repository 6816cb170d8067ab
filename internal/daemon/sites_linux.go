package daemon

import (
	"strings"
	"sync"

	"github.com/rvtsim/rvtsim/internal/callsite"
)

// sites are the places in programs where calls were made. Each has a number, which goes
// through the device with the call; words are made of it only when somebody asks.
type sites struct {
	mu    sync.Mutex
	of    map[string]uintptr
	texts []string // by number, less 1
	files callsite.Files
}

// maxSites bounds them: a program has so many places that post, and one that makes them up
// gets no more.
const maxSites = 4096

// number returns the number of a place, as the preload library describes it; 0 for none.
func (s *sites) number(text string) uintptr {
	if text == "" {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.of[text]
	if n == 0 && len(s.texts) < maxSites {
		if s.of == nil {
			s.of = map[string]uintptr{}
		}
		text = strings.Clone(text)
		s.texts = append(s.texts, text)
		n = uintptr(len(s.texts))
		s.of[text] = n
	}
	return n
}

// describe puts a place into words, "" if it is not known.
func (s *sites) describe(n uintptr) string {
	s.mu.Lock()
	if n == 0 || int(n) > len(s.texts) {
		s.mu.Unlock()
		return ""
	}
	text := s.texts[n-1]
	s.mu.Unlock()
	return s.files.Describe(text)
}

// wantsSites reports whether programs are to say where they make their calls.
func (h *hosted) wantsSites() bool { return h.cfg.Sites || h.cfg.Strict.Any() }

// splitSite takes the place where a command was made off its end. What is no command then
// is refused by whoever reads it.
func (r *request) splitSite() string {
	n := int(min(r.why, maxSite))
	at := max(len(r.data)-n, 0)
	site := string(r.data[at:])
	r.data = r.data[:at]
	return site
}

// insert puts a line behind the first one of a text, if there is something to say.
func insert(text, what, place string) string {
	if place == "" {
		return text
	}
	first, rest, more := strings.Cut(text, "\n")
	text = first + "\n  " + what + " " + place
	if more {
		text += "\n" + rest
	}
	return text
}
