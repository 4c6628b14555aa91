package health

import "time"

// From these values on a figure counts. Shares are 0 to 1, pressures percent of the time.
const (
	busyCPU       = 0.90 // of a guest's own processors, or of its limit
	fullCPU       = 0.98
	nodeCPU       = 0.85
	nodeCPUFull   = 0.95
	loadPerCPU    = 1.5 // load average per processor
	loadPerCPUBad = 3.0
	waitIO        = 0.10 // of a node's processors waiting for disks
	waitIOBad     = 0.25

	pressureSome    = 10.0 // some tasks waited
	pressureSomeBad = 40.0
	pressureFull    = 5.0 // all tasks waited at once
	pressureFullBad = 20.0
	pressureMem     = 5.0
	pressureMemBad  = 20.0

	fullMemory      = 0.90
	fullMemoryBad   = 0.97
	nodeMemory      = 0.90
	nodeMemoryBad   = 0.96
	swapUsed        = 0.25 // of a guest's or node's swap
	swapUsedBad     = 0.80
	ballooned       = 0.95 // a VM that has less than this share of its memory
	overcommit      = 1.2  // memory promised to running guests per memory there is
	processorsOver  = 4.0  // processors promised per processor
	diskFull        = 0.90
	diskFullBad     = 0.97
	storageFull     = 0.85
	storageFullBad  = 0.95
	poolFull        = 0.80 // thin and ZFS pools get slow and dangerous earlier
	poolFullBad     = 0.90
	metadataFull    = 0.75
	metadataFullBad = 0.90
	limitReached    = 0.90 // of a configured I/O or network limit
	neighbourCPU    = 0.15 // of a node's processors that one neighbour uses
	neighbourIO     = 10 << 20

	manySnapshots   = 5
	oldSnapshot     = 30 * 24 * time.Hour
	veryOldSnapshot = 180 * 24 * time.Hour
	freshStart      = time.Hour
	manyStarts      = 3 // in a day
	lastWeek        = 7 * 24 * time.Hour
	lastDay         = 24 * time.Hour
	certSoon        = 21 * 24 * time.Hour
	certOwnSoon     = 10 * 24 * time.Hour // of the node's own certificate, which the node renews by itself two weeks before
	certVerySoon    = 3 * 24 * time.Hour
	clockSkew       = 2 * time.Second
	clockSkewBad    = 30 * time.Second
	replicationLate = 2 * time.Hour // after it was due
)
