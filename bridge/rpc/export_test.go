package rpc

// JoinBatch lets a test see the bound of a batch's answer without 16 MiB of
// conversation.
var JoinBatch = joinBatch

// SplitTarget lets a test see what a host call's parameters are taken apart into.
var SplitTarget = splitTarget
