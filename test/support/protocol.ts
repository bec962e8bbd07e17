// All schemas of the protocol between node and control plane, for tests that go through every one.

export * from "../../src/protocol/checkin.ts";
export * from "../../src/protocol/confirmation.ts";
export * from "../../src/protocol/download.ts";
export * from "../../src/protocol/error-body.ts";
export * from "../../src/protocol/finding-kinds.ts";
export * from "../../src/protocol/hashed-texts.ts";
export * from "../../src/protocol/host-labels.ts";
export * from "../../src/protocol/join-key.ts";
export * from "../../src/protocol/key-words.ts";
export * from "../../src/protocol/name-suffix.ts";
export * from "../../src/protocol/names-for-peers.ts";
export * from "../../src/protocol/names.ts";
export * from "../../src/protocol/networks-behind.ts";
export * from "../../src/protocol/node.ts";
export * from "../../src/protocol/orders.ts";
export * from "../../src/protocol/users-groups.ts";
export * from "../../src/protocol/path-report.ts";
export * from "../../src/protocol/registration.ts";
export * from "../../src/protocol/traffic-reports.ts";
export * from "../../src/protocol/seals/seal.ts";
export * from "../../src/protocol/second-lighthouse.ts";
export * from "../../src/protocol/settings.ts";
export * from "../../src/protocol/shown-groups.ts";
export * from "../../src/protocol/sign-in.ts";
export * from "../../src/protocol/organization-files.ts";
export * from "../../src/protocol/values.ts";
