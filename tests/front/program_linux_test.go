package front

import "testing"

// TestProgramEngine runs the tests of this package once more, with the engine inside the
// programs instead of the daemon.
func TestProgramEngine(t *testing.T) {
	if *everywhere != "" {
		t.Skip("every test runs there, or none")
	}
	program(t, "events") // or say what is missing
	engine = "program"
	defer func() { engine = "daemon" }()
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"Devices", TestDevices}, {"Pingpong", TestPingpong}, {"Perftest", TestPerftest}, {"OwnPrograms", TestOwnPrograms},
		{"Guest", TestGuest}, {"ExtendedPolling", TestExtendedPolling}, {"TwoRuntimes", TestTwoRuntimes}, {"IdleProgram", TestIdleProgram}, {"StoppedPeer", TestStoppedPeer},
		{"Ls", TestLs}, {"KilledPrograms", TestKilledPrograms}, {"PeerIsKilled", TestPeerIsKilled},
		{"StoppedProgramHoldsUpNobody", TestStoppedProgramHoldsUpNobody}, {"DaemonGoes", TestDaemonGoes},
		{"ManyProgramsAtOnce", TestManyProgramsAtOnce}, {"OrdinaryUser", TestOrdinaryUser}, {"LossyNetwork", TestLossyNetwork},
		{"PreloadIsKept", TestPreloadIsKept}, {"FaultsOfTheNetwork", TestFaultsOfTheNetwork}, {"LinkChanges", TestLinkChanges}, {"NodeDiesAndComesBack", TestNodeDiesAndComesBack},
		{"FaultsOfVerbs", TestFaultsOfVerbs}, {"SpuriousEvents", TestSpuriousEvents}, {"MulticastJoin", TestMulticastJoin},
	} {
		t.Run(c.name, c.test)
	}
}
