package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
)

// Flow describes one captured conversation.
type Flow struct {
	Client Side  `json:"client"`
	Server Side  `json:"server"`
	Setup  Setup `json:"setup"`
}

// Side is one end of a conversation: its QP, its memory and what its program saw.
type Side struct {
	Note    string     `json:"note"`
	Ops     string     `json:"ops"` // see parseOps
	QPN     ib.QPN     `json:"qpn"`
	DestQPN ib.QPN     `json:"dest_qpn"`
	SQPSN   ib.PSN     `json:"sq_psn"`
	RQPSN   ib.PSN     `json:"rq_psn"`
	RKey    uint32     `json:"rkey"`
	VA      hexUint64  `json:"va"`
	PeerKey uint32     `json:"peer_rkey"`
	PeerVA  hexUint64  `json:"peer_va"`
	PathMTU int        `json:"path_mtu"`
	WC      []WC       `json:"wc"`
	State   ib.QPState `json:"qp_state_after"`
	// AtomicNow and AtomicOld are the values that atomics left and returned.
	AtomicNow hexUint64   `json:"atomic_now"`
	AtomicOld []hexUint64 `json:"atomic_old"`
	// RecvHead is the beginning of the receive buffer of a datagram, in hexadecimal.
	RecvHead string `json:"recv_buffer_first_56"`
}

// WC is a completion that the program polled.
type WC struct {
	WRID    uint64  `json:"wr_id"`
	Status  string  `json:"status"` // as ibv_wc_status_str prints it
	Opcode  *uint32 `json:"opcode"`
	ByteLen *uint32 `json:"byte_len"`
	Flags   *uint32 `json:"flags"`
	SrcQP   *ib.QPN `json:"src_qp"`
}

// Setup is what the packets do not show: how both programs set their QPs up.
type Setup struct {
	Transport       string   `json:"transport"` // rc, uc or ud
	RecvCount       int      `json:"recv_count"`
	RecvBytes       int      `json:"recv_bytes"`
	RecvDelayMs     int      `json:"recv_delay_ms"`
	ServerMRAccess  []string `json:"server_mr_access"`
	ServerQPAccess  []string `json:"server_qp_access"`
	Timeout         uint8    `json:"timeout"`
	RetryCnt        uint8    `json:"retry_cnt"`
	RNRRetry        uint8    `json:"rnr_retry"`
	MinRNRTimer     uint8    `json:"min_rnr_timer"`
	ServerGone      bool     `json:"server_qp_destroyed"`
	ServerPostsToo  bool     `json:"server_posts_too"`
	ServerBindsMW   bool     `json:"server_binds_window"`
	AV              *AVSetup `json:"av"`
	SameBuffersSize int      `json:"buffer_bytes"` // default 65536
}

// AVSetup is an unusual address vector.
type AVSetup struct {
	TrafficClass uint8  `json:"traffic_class"`
	FlowLabel    uint32 `json:"flow_label"`
	HopLimit     uint8  `json:"hop_limit"`
	SL           uint8  `json:"sl"`
}

type hexUint64 uint64

// UnmarshalJSON reads "0x..." or a number.
func (h *hexUint64) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return fmt.Errorf("%s is not a number", b)
	}
	*h = hexUint64(v)
	return nil
}

// ErrNoFlow says that the flows file has nothing about a capture.
var ErrNoFlow = errors.New("the flows file has no entry for this capture")

// LoadFlows reads a flows file.
func LoadFlows(path string) (map[string]Flow, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m map[string]Flow
	if err := json.Unmarshal(b, &m); err != nil {
		var syn *json.SyntaxError
		if errors.As(err, &syn) {
			line := 1 + strings.Count(string(b[:syn.Offset]), "\n")
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, f := range m {
		if err := f.validate(); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, name, err)
		}
	}
	return m, nil
}

func (f *Flow) validate() error {
	switch f.Setup.Transport {
	case "rc", "uc", "ud":
	default:
		return fmt.Errorf("setup.transport is %q, expected rc, uc or ud", f.Setup.Transport)
	}
	if f.Setup.SameBuffersSize == 0 {
		f.Setup.SameBuffersSize = 65536
	}
	for _, a := range append(append([]string(nil), f.Setup.ServerMRAccess...), f.Setup.ServerQPAccess...) {
		if _, ok := accessNames[a]; !ok {
			return fmt.Errorf("unknown access %q, expected remote_read, remote_write or remote_atomic", a)
		}
	}
	for _, s := range []*Side{&f.Client, &f.Server} {
		if _, ok := ib.MTUFromBytes(s.PathMTU); !ok {
			return fmt.Errorf("path_mtu %d is not one of 256, 512, 1024, 2048, 4096", s.PathMTU)
		}
		if s.QPN > ib.QPNMask || s.QPN < 2 {
			return fmt.Errorf("qpn %d is out of range", s.QPN)
		}
	}
	_, err := parseOps(f.Client.Ops)
	return err
}

var accessNames = map[string]ib.Access{
	"remote_read": ib.AccessRemoteRead, "remote_write": ib.AccessRemoteWrite, "remote_atomic": ib.AccessRemoteAtomic,
}

func access(names []string) ib.Access {
	var a ib.Access
	for _, n := range names {
		a |= accessNames[n]
	}
	return a
}

// baseName is the key of a capture in a flows file.
func baseName(path string) string {
	b := filepath.Base(path)
	return strings.TrimSuffix(b, filepath.Ext(b))
}

// statusOf turns ibv_wc_status_str's text into a status.
func statusOf(s string) (ib.WCStatus, bool) {
	st, ok := statusText[strings.ToLower(s)]
	return st, ok
}

var statusText = map[string]ib.WCStatus{
	"success":                           ib.WCSuccess,
	"local length error":                ib.WCLocLenErr,
	"local qp operation error":          ib.WCLocQPOpErr,
	"local protection error":            ib.WCLocProtErr,
	"work request flushed error":        ib.WCWRFlushErr,
	"memory management operation error": ib.WCMWBindErr,
	"bad response error":                ib.WCBadRespErr,
	"local access error":                ib.WCLocAccessErr,
	"remote invalid request error":      ib.WCRemInvReqErr,
	"remote access error":               ib.WCRemAccessErr,
	"remote operation error":            ib.WCRemOpErr,
	"transport retry counter exceeded":  ib.WCRetryExcErr,
	"rnr retry counter exceeded":        ib.WCRNRRetryExcErr,
	"aborted error":                     ib.WCRemAbortErr,
	"fatal error":                       ib.WCFatalErr,
}
