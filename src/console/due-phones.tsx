// Phones whose users have to import them again: the certificate nears its end, or the CAs or their groups have changed.

import type { Attention } from "../api/paths.ts";
import { pathOf } from "./router.ts";

export function DuePhones({ own, due }: { own: string; due: Attention["phones_due"] }) {
  if (due.count === 0) return null;
  const more = due.count - due.first.length;
  return (
    <>
      <h2>Phones to import again</h2>
      <p>
        Their users do it, before the certificate or the CA ends: <a href={pathOf(own, "phones")}>Phones</a>
      </p>
      <ul class="plain-list">
        {due.first.map(({ id, name }) => (
          <li key={id}>
            <a href={pathOf(own, "nodes", id)}>
              <bdi>{name}</bdi>
            </a>
          </li>
        ))}
        {more > 0 ? (
          <li>
            <a href={`${pathOf(own, "nodes")}?show=due`}>and {more} more</a>
          </li>
        ) : null}
      </ul>
    </>
  );
}
