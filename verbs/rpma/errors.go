package rpma

import "strconv"

// Error is a code of librpma (RPMA_E_*).
type Error int

// The codes, with librpma's numbers.
const (
	ErrUnknown       Error = -100000 // RPMA_E_UNKNOWN
	ErrNoSupp        Error = -100001 // RPMA_E_NOSUPP
	ErrProvider      Error = -100002 // RPMA_E_PROVIDER: a call below failed; the cause says how
	ErrNoMem         Error = -100003 // RPMA_E_NOMEM
	ErrInval         Error = -100004 // RPMA_E_INVAL
	ErrNoCompletion  Error = -100005 // RPMA_E_NO_COMPLETION
	ErrNoEvent       Error = -100006 // RPMA_E_NO_EVENT
	ErrAgain         Error = -100007 // RPMA_E_AGAIN
	ErrSharedChannel Error = -100008 // RPMA_E_SHARED_CHANNEL
	ErrNotSharedChnl Error = -100009 // RPMA_E_NOT_SHARED_CHNL
)

var errorTexts = [...]string{
	"unknown error (RPMA_E_UNKNOWN)", "not supported (RPMA_E_NOSUPP)", "provider error (RPMA_E_PROVIDER)",
	"out of memory (RPMA_E_NOMEM)", "invalid argument (RPMA_E_INVAL)", "no completion (RPMA_E_NO_COMPLETION)",
	"no event (RPMA_E_NO_EVENT)", "try again (RPMA_E_AGAIN)", "the completion channel is shared (RPMA_E_SHARED_CHANNEL)",
	"the completion channel is not shared (RPMA_E_NOT_SHARED_CHNL)",
}

func (e Error) Error() string {
	if i := int(ErrUnknown - e); i >= 0 && i < len(errorTexts) {
		return errorTexts[i]
	}
	return "rpma error " + strconv.Itoa(int(e))
}

// OpError is the error of a call: which call, what it returns in C, and why. It matches
// its code and its cause.
type OpError struct {
	Op   string // "cq_get_wc"
	Code Error
	Err  error // the cause; nil if the code says all
}

func (e *OpError) Error() string {
	s := "rpma_" + e.Op + ": " + e.Code.Error()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is makes errors.Is(err, rpma.ErrInval) true for its code.
func (e *OpError) Is(target error) bool { return target == e.Code }

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

func fail(op string, code Error, cause error) error { return &OpError{op, code, cause} }

// provider wraps an error from below; nil stays nil.
func provider(op string, err error) error {
	if err == nil {
		return nil
	}
	return fail(op, ErrProvider, err)
}

// reason is a cause in words.
type reason string

func (r reason) Error() string { return string(r) }

func inval(op, why string) error { return fail(op, ErrInval, reason(why)) }
