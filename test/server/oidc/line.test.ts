// The line of sign-ins at a provider.

import { expect, test } from "bun:test";
import { makeInLine } from "../../../src/server/oidc/line.ts";

test("a few ask a provider at once, the others in turn; one that is too many gets Retry-After", async () => {
  const inLine = makeInLine({ atOnce: 2, maxWaiting: 3 });
  const held = Array.from({ length: 5 }, () => Promise.withResolvers<undefined>());
  const begun: number[] = [];
  const all = held.map(({ promise }, at) =>
    inLine(1, () => {
      begun.push(at);
      return promise;
    }),
  );
  const refused = inLine(1, () => Promise.resolve());
  expect(await refused.catch((error: unknown) => error)).toMatchObject({
    code: "throttled",
    details: { retryAfter: 10 },
  });
  expect(begun).toEqual([0, 1]);
  // Another provider has a line of its own.
  expect(await inLine(2, () => Promise.resolve("there"))).toBe("there");
  held[1]?.reject(new Error("it does not answer"));
  expect(await all[1]?.catch((error: Error) => error.message)).toBe("it does not answer");
  held[0]?.resolve(undefined);
  await all[0];
  expect(begun).toEqual([0, 1, 2, 3]);
  for (const { resolve } of held) resolve(undefined);
  await Promise.all(all.filter((_, at) => at !== 1));
  expect(begun).toEqual([0, 1, 2, 3, 4]);
});
