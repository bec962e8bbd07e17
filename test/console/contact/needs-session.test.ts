// What is not asked for while the session has ended.

import { expect, test } from "bun:test";
import { needsSession } from "../../../src/console/contact/needs-session.ts";

test.each([
  "/api/org/acme/nodes/",
  "/api/org/acme/",
  "/api/servers/",
  "/api/users/?page_size=1000",
  "/api/events/?before=1",
  "/api/identity_providers/",
  "/api/user/sessions/?page_size=1000",
  "/api/user/passkeys/",
  "/api/user/identities/",
])("%s is not read until the user has signed in again", (path) =>
  expect(needsSession("GET", path)).toBe(true),
);

test.each(["/api/user/", "/api/user/factors/", "/api/org/?page_size=1000", "/api/session/providers/"])(
  "the sign-in reads %s",
  (path) => expect(needsSession("GET", path)).toBe(false),
);

test("the sign-in is sent", () => expect(needsSession("POST", "/api/session/")).toBe(false));
