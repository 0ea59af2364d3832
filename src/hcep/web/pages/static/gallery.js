// A gallery of any number of photos: only tiles in or near view are in the page and are requested.
const GAP = 10, CAPTION = 50, SPARE = 2, KEPT = 1500;

export default {
  template: `
    <div class="gallery" ref="box" role="region" tabindex="0" :aria-label="label" @scroll.passive="look" @keydown="walk">
      <ul :style="{ height: rows * high + 'px' }" :aria-label="label">
        <li v-for="i in shown" :key="version + ':' + i" :aria-posinset="i + 1" :aria-setsize="count" :style="place(i)">
          <button v-if="tiles[i]" type="button" class="tile" :class="tiles[i].tone"
              :data-at="i" tabindex="-1" @click="$emit('open', tiles[i].row)" @focus="at = i">
            <span class="photo"><img :src="base + tiles[i].row + '.jpg'" :alt="tiles[i].name" decoding="async" @error="gone"></span>
            <span class="name"><b>{{ tiles[i].name }}</b> <i>{{ tiles[i].sure }}</i></span>
            <span class="note">{{ tiles[i].note }}</span>
          </button>
          <span v-else class="tile waiting" aria-hidden="true"></span>
        </li>
      </ul>
    </div>`,
  props: { count: Number, version: Number, base: String, label: String, tile: { type: Number, default: 150 } },
  emits: ["ask", "open"],
  data: () => ({ width: 600, height: 600, top: 0, tiles: {}, at: 0, asked: "" }),
  computed: {
    columns() { return Math.max(2, Math.floor((this.width + GAP) / (this.tile + GAP))); },
    wide() { return (this.width - GAP * (this.columns - 1)) / this.columns; },
    high() { return Math.round(this.wide + CAPTION + GAP); },
    rows() { return Math.ceil(this.count / this.columns); },
    shown() {
      const first = Math.max(0, Math.floor(this.top / this.high) - SPARE) * this.columns;
      const last = Math.min(this.count, (Math.ceil((this.top + this.height) / this.high) + SPARE) * this.columns);
      return Array.from({ length: Math.max(0, last - first) }, (_, k) => first + k);
    },
  },
  watch: {
    version() { this.tiles = {}; this.at = 0; this.asked = ""; this.$refs.box.scrollTop = 0; this.top = 0; this.ask(); },
    shown() { this.ask(); },
  },
  mounted() {
    this.observer = new ResizeObserver(() => this.measure());
    this.observer.observe(this.$refs.box);
    this.measure();
    this.ask();
  },
  unmounted() { this.observer?.disconnect(); },
  methods: {
    measure() {
      const style = getComputedStyle(this.$refs.box);
      this.width = this.$refs.box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
      this.height = this.$refs.box.clientHeight;
    },
    look() {
      this.frame ??= requestAnimationFrame(() => { this.frame = undefined; this.top = this.$refs.box?.scrollTop ?? 0; });
    },
    place(i) {
      const x = (i % this.columns) * (this.wide + GAP), y = Math.floor(i / this.columns) * this.high;
      return { transform: `translate(${x}px, ${y}px)`, width: this.wide + "px", height: this.high - GAP + "px" };
    },
    ask() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => {
        const missing = this.shown.filter((i) => !this.tiles[i]);
        if (!missing.length) return;
        const range = [this.version, missing[0], missing[missing.length - 1] + 1];
        if (this.asked !== String(range)) this.$emit("ask", range);
        this.asked = String(range);
      }, 40);
    },
    fill(version, start, tiles) {
      if (version !== this.version) return;
      tiles.forEach((tile, k) => { this.tiles[start + k] = tile; });
      this.asked = "";
      const known = Object.keys(this.tiles);
      if (known.length > KEPT) known.filter((i) => Math.abs(i - start) > KEPT / 2).forEach((i) => delete this.tiles[i]);
      this.ask();
    },
    gone(event) { event.target.closest(".photo").classList.add("gone"); event.target.remove(); },
    walk(event) {
      const page = this.columns * Math.max(1, Math.floor(this.height / this.high));
      const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, PageDown: page, PageUp: -page,
        Home: -this.count, End: this.count }[event.key];
      if (by === undefined || !this.count) return;
      event.preventDefault();
      const inside = event.target.dataset?.at !== undefined;
      this.at = inside ? Math.min(this.count - 1, Math.max(0, this.at + by)) : this.at;
      const y = Math.floor(this.at / this.columns) * this.high, box = this.$refs.box;
      if (y < box.scrollTop) box.scrollTop = y;
      if (y + this.high > box.scrollTop + this.height) box.scrollTop = y + this.high - this.height;
      this.focus(100);
    },
    focus(tries) {
      const found = this.$refs.box.querySelector(`[data-at="${this.at}"]`);
      if (found) found.focus({ preventScroll: true });
      else if (tries) setTimeout(() => this.focus(tries - 1), 50);
    },
  },
};
