// All schemas of the protocol between node and control plane, for tests that go through every one.

export * from "../../src/protocol/checkin.ts";
export * from "../../src/protocol/confirmation.ts";
export * from "../../src/protocol/download.ts";
export * from "../../src/protocol/error-body.ts";
export * from "../../src/protocol/names.ts";
export * from "../../src/protocol/node.ts";
export * from "../../src/protocol/orders.ts";
export * from "../../src/protocol/path-report.ts";
export * from "../../src/protocol/paths.ts";
export * from "../../src/protocol/registration.ts";
export * from "../../src/protocol/relayed-report.ts";
export * from "../../src/protocol/sign-in.ts";
export * from "../../src/protocol/stored.ts";
export * from "../../src/protocol/values.ts";
