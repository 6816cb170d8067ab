package uverbs

import (
	"fmt"
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
)

// Tree is a sysfs tree for libibverbs, librdmacm and libibumad, below a root that the
// program finds by $SYSFS_PATH or by the preload library.
type Tree struct {
	// Files maps a path, relative to the root and with slashes, to its content.
	Files map[string]string
	// Links maps a path to its target, which is relative to the root too: the one who
	// writes the tree makes it absolute or relative to the link as he needs.
	Links map[string]string
	// Dirs are directories that would otherwise be missing because they are empty.
	Dirs []string
}

// Major and minor numbers of the device files, as the kernel has them. The preload
// library answers fstat() with the same.
const (
	UverbsMajor     = 231
	UverbsMinorBase = 192
	CMMajor         = 10
	CMMinor         = 58
)

// SysfsTree returns the tree of the devices of one node.
func SysfsTree(devices ...DeviceConfig) Tree {
	t := Tree{Files: map[string]string{
		"class/infiniband_verbs/abi_version": "6\n",
		"class/infiniband_mad/abi_version":   "5\n",
		"class/misc/rdma_cm/abi_version":     "4\n",
		"class/misc/rdma_cm/dev":             fmt.Sprintf("%d:%d\n", CMMajor, CMMinor),
	}, Links: map[string]string{}}
	for i := range devices {
		t.addDevice(&devices[i])
	}
	return t
}

func (t *Tree) addDevice(c *DeviceConfig) {
	uverbs := "uverbs" + strconv.Itoa(c.Index)
	cdev, dev := "class/infiniband_verbs/"+uverbs, "class/infiniband/"+c.Name
	version := abi(rxeABI{})
	if c.ABI == ABIRVT {
		version = rvtABI{}
	}
	t.put(cdev, map[string]string{
		"ibdev":       c.Name,
		"dev":         fmt.Sprintf("%d:%d", UverbsMajor, UverbsMinorBase+c.Index),
		"abi_version": strconv.Itoa(version.version()),
	})
	t.Links[cdev+"/device"] = dev + "/device"
	desc := c.NodeDesc
	if desc == "" {
		desc = c.Name
	}
	t.put(dev, map[string]string{
		"node_type": "1: CA", "node_guid": guidText(c.GUID), "sys_image_guid": guidText(c.GUID),
		"fw_ver": fwVersionText, "node_desc": desc, "board_id": "rvtsim", "hw_rev": strconv.Itoa(hwVersion), "hca_type": "rvtsim",
		"device/modalias": modalias(c.ABI), "device/numa_node": "-1",
	})
	t.Links[dev+"/device/infiniband_verbs/"+uverbs] = cdev
	t.Links[dev+"/device/infiniband/"+c.Name] = dev
	t.Dirs = append(t.Dirs, dev+"/device/net/"+c.netDev())
	t.addPort(dev+"/ports/1", c)
}

// modalias makes libibverbs choose the provider, whatever the device is called.
func modalias(abi string) string {
	if abi == ABIRVT {
		return "pci:v00008086d000024F0sv00008086sd000024F0bc02sc08i00"
	}
	return "rdma_device:Nrxe"
}

func (t *Tree) addPort(port string, c *DeviceConfig) {
	state, phys := c.Port.text()
	t.put(port, map[string]string{
		"state": state, "phys_state": phys, "link_layer": "Ethernet", "rate": c.rate().text(),
		"lid": "0x0", "sm_lid": "0x0", "sm_sl": "0", "lid_mask_count": "0", "cap_mask": "0x00010000", "pkeys/0": fmt.Sprintf("0x%04x", ib.PKeyDefault),
	})
	for i := range c.gidTableLen(len(c.GIDs)) {
		n := strconv.Itoa(i)
		if i < len(c.GIDs) && !c.GIDs[i].IsZero() {
			t.put(port, map[string]string{"gids/" + n: c.GIDs[i].Sysfs(), "gid_attrs/types/" + n: "RoCE v2", "gid_attrs/ndevs/" + n: c.netDevOf(i)})
			continue
		}
		// An empty entry reads as zero. Reading its type fails with EINVAL in the kernel,
		// which libibverbs takes for this one; a plain file cannot fail that way.
		t.put(port, map[string]string{"gids/" + n: ib.GID{}.Sysfs(), "gid_attrs/types/" + n: "IB/RoCE v1"})
	}
}

func (t *Tree) put(dir string, files map[string]string) {
	for name, text := range files {
		t.Files[dir+"/"+name] = text + "\n"
	}
}

// guidText prints a GUID as sysfs does.
func guidText(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}
