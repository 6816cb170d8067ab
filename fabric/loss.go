package fabric

import "strconv"

// LossReason says why the network lost a packet. It is apart from wire.DropReason,
// which says why a receiver refused one.
type LossReason uint8

const (
	LossNone        LossReason = iota // not lost
	LossRandom                        // ImpairmentConfig.Loss
	LossBurst                         // ImpairmentConfig.Burst
	LossRule                          // a Rule with ActionDrop
	LossPartition                     // the two addresses are partitioned
	LossQueue                         // a bounded queue was full
	LossMTU                           // longer than the link carries
	LossUnreachable                   // nobody has the destination address
	LossMalformed                     // not a packet that can be put on a wire
	NumLossReasons  = 9
)

var lossNames = [NumLossReasons]string{"none", "random", "burst", "rule", "partition", "queue", "mtu", "unreachable", "malformed"}

func (r LossReason) String() string {
	if int(r) < len(lossNames) {
		return lossNames[r]
	}
	return "LossReason(" + strconv.Itoa(int(r)) + ")"
}
