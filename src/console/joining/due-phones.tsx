// Phones whose users have to import them again: the certificate nears its end, or the CAs or their groups have changed.

import type { Attention } from "../../api/paths/attention.ts";
import { pathOf } from "../frame/router.ts";
import { Panel } from "../ui/page.tsx";

export function DuePhones({ slug, due }: { slug: string; due: Attention["phones_due"] }) {
  if (due.count === 0) return null;
  const more = due.count - due.first.length;
  return (
    <Panel title="Phones to import again" actions={<a href={pathOf(slug, "phones")}>Phones</a>}>
      <ul class="lines">
        <li class="quiet">Their users do it, before the certificate or the CA ends.</li>
        {due.first.map(({ id, name }) => (
          <li key={id}>
            <a class="name" href={pathOf(slug, "nodes", id)}>
              <bdi>{name}</bdi>
            </a>
          </li>
        ))}
        {more > 0 ? (
          <li>
            <a href={`${pathOf(slug, "nodes")}?show=due`}>and {more} more</a>
          </li>
        ) : null}
      </ul>
    </Panel>
  );
}
