// What the console says of tokens.

import { expect, test } from "bun:test";
import { isOnlyFor, mayDo, twiceIn, unused } from "../../../src/console/joining/token-words.ts";

test("a service token's role decides whether it changes anything, its scopes what", () => {
  expect(mayDo({ role: "admin", scopes: ["read", "nodes"] })).toBe("change nodes; read everything");
  expect(mayDo({ role: "admin", scopes: ["nodes", "policy"] })).toBe(
    "change nodes, policy; read nodes, policy",
  );
  expect(mayDo({ role: "admin", scopes: ["read"] })).toBe("read everything");
  expect(mayDo({ role: "member", scopes: ["read", "nodes"] })).toBe("read everything");
  expect(mayDo({ role: "member", scopes: ["nodes"] })).toBe("read nodes");
  expect(mayDo({ role: "admin", scopes: null })).toBe("all that an administrator may");
  expect(mayDo({ role: "member", scopes: null })).toBe("read everything");
});

test("a token of a version that recorded no uses may have been used", () => {
  expect(unused({ scopes: ["read"] })).toBe("never");
  expect(unused({ scopes: null })).toBe("not recorded");
});

test("a name that a machine has, or that another one asks for, is there twice", () => {
  expect(twiceIn(["web-1", "db-1", "web-1", "web", "web-1"])).toEqual(new Set(["web-1"]));
});

test("the token of a refused machine ends by default only if nobody else needs it", () => {
  const machine = { id: 1, registration_token_id: 4 };
  expect(isOnlyFor(machine, { uses: 1, used: 1 }, [machine])).toBe(true);
  // All others have come already.
  expect(isOnlyFor(machine, { uses: 3, used: 3 }, [machine])).toBe(true);
  expect(isOnlyFor(machine, { uses: 3, used: 1 }, [machine])).toBe(false);
  // A revocation would refuse another machine, too.
  expect(isOnlyFor(machine, { uses: 2, used: 2 }, [machine, { id: 2, registration_token_id: 4 }])).toBe(
    false,
  );
  expect(isOnlyFor(machine, { uses: 1, used: 1 }, [machine, { id: 2, registration_token_id: 5 }])).toBe(true);
  // The list of machines that wait is not read yet.
  expect(isOnlyFor(machine, { uses: 1, used: 1 }, undefined)).toBe(false);
});
