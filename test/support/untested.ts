// For calls of edits without a request: no call waits for a turn, and no rights end.

import type { Testing } from "../../src/server/policy/edit-policy.ts";

export const untested: Testing = { inTurn: (work) => work(), admitAgain: () => Promise.resolve() };
