// Icons, signs of states, the product's mark, and the round pictures that stand for users.

import { icons, signs, type IconName, type SignName } from "./drawings.ts";

/** Says nothing to screen readers: words stand beside it, or the control has a label. */
export const Icon = ({ name }: { name: IconName }) => (
  <svg class="i" viewBox="0 0 16 16" aria-hidden="true">
    <path d={icons[name]} />
  </svg>
);

/** The sign of a state, in its colour. */
export const Sign = ({ name }: { name: SignName }) => (
  <svg class={`g g-${name}`} viewBox="0 0 12 12" aria-hidden="true">
    <path d={signs[name]} />
  </svg>
);

/** A ring that a tunnel passes, with a node at each end. */
export const Logo = () => (
  <svg class="logo" viewBox="0 0 24 24" aria-hidden="true">
    <path class="ring" d="M15.9 6.2A7 7 0 0 0 5.6 14.9M8.1 17.8A7 7 0 0 0 18.4 9.1" />
    <path class="tunnel" d="M4.6 19.4 19.4 4.6" />
    <circle class="end" cx="4.4" cy="19.6" r="2.6" />
    <circle class="end" cx="19.6" cy="4.4" r="2.6" />
  </svg>
);

/** Two letters of the name stand for a user; an icon stands for a node, or for the control plane. */
export const Avatar = ({ name, icon }: { name: string; icon?: IconName | undefined }) =>
  icon === undefined ? (
    <span class="avatar" aria-hidden="true">
      {name.slice(0, 2).toUpperCase()}
    </span>
  ) : (
    <span class="avatar of-machine" aria-hidden="true">
      <Icon name={icon} />
    </span>
  );
