package spec

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/qp"
)

// deviation is a row of DEVIATIONS.md.
type deviation struct {
	values [3]string // ibta, rdmavt, rxe
	why    string
}

func readDeviations(t *testing.T) (rows map[string]deviation, order []string) {
	t.Helper()
	b, err := os.ReadFile("DEVIATIONS.md")
	require.NoError(t, err)
	rows = map[string]deviation{}
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Split(line, "|")
		if len(f) != 7 || !strings.HasPrefix(f[1], " `") {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		name := strings.Trim(f[1], "`")
		require.NotContains(t, rows, name)
		rows[name] = deviation{[3]string{f[2], f[3], f[4]}, f[5]}
		order = append(order, name)
	}
	return rows, order
}

// profileValue is a field as DEVIATIONS.md shows it.
func profileValue(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case bool:
		if x {
			return "yes"
		}
		return "no"
	case time.Duration:
		return x.String()
	default:
		return fmt.Sprint(x)
	}
}

// TestDeviations: each field of the profile table has a row that shows the values of
// the code and says what it is about, in the order of the code.
func TestDeviations(t *testing.T) {
	rows, order := readDeviations(t)
	profiles := []reflect.Value{reflect.ValueOf(qp.ProfileIBTA), reflect.ValueOf(qp.ProfileRDMAVT), reflect.ValueOf(qp.ProfileRXE)}
	var fields []string
	for i := range profiles[0].NumField() {
		name := profiles[0].Type().Field(i).Name
		if name == "Name" {
			continue
		}
		fields = append(fields, name)
		row, ok := rows[name]
		if !ok {
			t.Errorf("qp.Profile.%s has no row in DEVIATIONS.md: | `%s` | %s | %s | %s | why |", name, name,
				profileValue(profiles[0].Field(i)), profileValue(profiles[1].Field(i)), profileValue(profiles[2].Field(i)))
			continue
		}
		for k, p := range profiles {
			if got := profileValue(p.Field(i)); got != row.values[k] {
				t.Errorf("DEVIATIONS.md says that %s of profile %s is %s, the code says %s", name, p.FieldByName("Name"), row.values[k], got)
			}
		}
		if len(row.why) < 20 {
			t.Errorf("DEVIATIONS.md does not say what %s is about", name)
		}
	}
	require.Equal(t, fields, order, "rows and fields must have the same order")
}
