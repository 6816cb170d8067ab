module github.com/rvtsim/rvtsim

go 1.26
