<?php
/* What happens to a blog: blog.php SOURCE STEP. It prints what WordPress answers; a fault of the database ends it. */
[, $source, $step] = $argv;
error_reporting(E_ALL & ~E_DEPRECATED);
if ($step === 'install') define('WP_INSTALLING', true);
require $source . '/wp-load.php';
require_once ABSPATH . 'wp-admin/includes/admin.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';
$wpdb->show_errors();

function fine($what) { if (is_wp_error($what) || $what === false || $what === 0) { var_dump($what); exit(1); } return $what; }
function found($name, $asked) {
    $query = new WP_Query($asked + ['posts_per_page' => 7, 'post_status' => 'any', 'ignore_sticky_posts' => true]);
    echo "$name: $query->found_posts in $query->max_num_pages: ", implode(', ', array_map(fn($one) => "$one->ID $one->post_title", $query->posts)), "\n";
}
$words = ['terrace', 'flash', 'volume', 'object', 'Zürich', '中文', '𐍈 gothic', 'page', 'log', "it's"];
$kinds = fn() => array_map('intval', get_terms(['taxonomy' => 'category', 'hide_empty' => false, 'fields' => 'ids', 'orderby' => 'term_id']));

switch ($step) {
case 'install':
    print_r(array_keys(wp_install('A blog', 'keeper', 'keeper@example.org', true, '', 'of-no-worth')));
    break;
case 'write':
    for ($at = 0; $at < 8; $at++) fine(wp_insert_term("Kind $at", 'category', ['description' => "of kind $at", 'parent' => $at > 4 ? 2 : 0]));
    for ($at = 0; $at < 6; $at++) fine(wp_insert_user(['user_login' => "writer$at", 'user_pass' => "of-no-worth-$at", 'user_email' => "w$at@example.org", 'role' => $at % 2 ? 'author' : 'editor']));
    $ids = $kinds();
    for ($at = 0; $at < 160; $at++) {
        $id = fine(wp_insert_post(['post_title' => "Of {$words[$at % 10]}, $at", 'post_content' => str_repeat("{$words[$at % 10]} and {$words[$at * 3 % 10]} in the {$words[$at * 7 % 10]} \n", 1 + $at * $at % 400),
            'post_status' => ['publish', 'publish', 'draft', 'private'][$at % 4], 'post_author' => 1 + $at % 7, 'post_date' => sprintf('2023-%02d-%02d 10:%02d:00', 1 + $at % 12, 1 + $at % 28, $at % 60),
            'post_category' => [$ids[$at % count($ids)], $ids[$at * 5 % count($ids)]], 'tags_input' => ["tag {$words[$at % 10]}", 'tag ' . $at % 23], 'post_type' => $at % 11 ? 'post' : 'page',
            'meta_input' => ['rank' => $at * 37 % 101, 'where' => ['at' => $at, 'word' => $words[$at % 10]]]], true));
        for ($no = 0; $no < $at % 6; $no++)
            fine(wp_insert_comment(['comment_post_ID' => $id, 'comment_author' => "Reader $no", 'comment_author_email' => "r$no@example.org", 'comment_content' => "A word on {$words[($at + $no) % 10]} $no",
                'comment_approved' => $no === 4 ? 'spam' : (int) ($no !== 3), 'comment_date' => sprintf('2023-%02d-%02d 11:%02d:00', 1 + $at % 12, 1 + $at % 28, $no), 'comment_meta' => ['stars' => $no]]));
    }
    break;
case 'change':
    foreach (get_posts(['numberposts' => -1, 'post_type' => 'any', 'post_status' => 'any', 'orderby' => 'ID', 'order' => 'ASC']) as $at => $post) {
        if ($at % 3 === 0) fine(wp_update_post(['ID' => $post->ID, 'post_content' => $post->post_content . ' once more', 'post_title' => $post->post_title . ' (again)'], true));
        if ($at % 10 === 1) fine(wp_trash_post($post->ID));
        if ($at % 10 === 4) fine(wp_delete_post($post->ID, true));
        update_post_meta($post->ID, 'rank', $at * 17 % 53);
    }
    foreach (get_posts(['numberposts' => 5, 'post_status' => 'trash', 'post_type' => 'any', 'orderby' => 'ID', 'order' => 'ASC']) as $post) fine(wp_untrash_post($post->ID));
    foreach (get_comments(['number' => 60, 'orderby' => 'comment_ID', 'order' => 'ASC']) as $at => $one)
        if ($at % 4 === 0) wp_set_comment_status($one->comment_ID, ['spam', 'hold', 'trash', 'approve'][$at % 16 / 4]);
    fine(wp_delete_term($kinds()[3], 'category'));
    fine(wp_update_term($kinds()[4], 'category', ['name' => 'Renamed', 'slug' => 'renamed']));
    fine(wp_delete_user(4, 2));
    wp_set_password('other-of-no-worth', 3);
    for ($at = 0; $at < 200; $at++) { update_option("of_blog_" . $at % 70, str_repeat("value $at ", $at * 9), $at % 2 ? 'yes' : 'no'); if ($at % 5 === 0) delete_option('of_blog_' . $at % 31); set_transient('seen_' . $at % 20, ['at' => $at], 0); }
    for ($at = 0; $at < 20; $at += 3) delete_transient("seen_$at");
    wp_schedule_single_event(1893456000, 'of_blog', ['at' => 1]);
    delete_expired_transients(true);
    break;
case 'upgrade':
    update_option('db_version', 37000);
    wp_upgrade();
    print_r(dbDelta("CREATE TABLE {$wpdb->prefix}visits (\n id bigint(20) unsigned NOT NULL auto_increment,\n path varchar(191) NOT NULL default '',\n seen datetime NOT NULL,\n PRIMARY KEY  (id),\n KEY path (path)\n) {$wpdb->get_charset_collate()};"));
    print_r(dbDelta("CREATE TABLE {$wpdb->prefix}visits (\n id bigint(20) unsigned NOT NULL auto_increment,\n path varchar(400) NOT NULL default '',\n seen datetime NOT NULL,\n agent text,\n PRIMARY KEY  (id),\n KEY path (path(191)),\n KEY seen (seen)\n) {$wpdb->get_charset_collate()};"));
    print_r(dbDelta('all', false));
    break;
case 'find':
    foreach ($words as $word) found("search $word", ['s' => $word, 'orderby' => ['title' => 'ASC', 'ID' => 'ASC']]);
    found('two words', ['s' => 'flash volume', 'orderby' => 'title', 'order' => 'ASC']);
    found('by rank', ['meta_key' => 'rank', 'orderby' => ['meta_value_num' => 'DESC', 'ID' => 'ASC'], 'paged' => 2]);
    found('rank between', ['meta_query' => [['key' => 'rank', 'value' => [5, 20], 'type' => 'NUMERIC', 'compare' => 'BETWEEN'], ['key' => 'none', 'compare' => 'NOT EXISTS']], 'orderby' => 'ID']);
    found('of kinds', ['tax_query' => ['relation' => 'OR', ['taxonomy' => 'category', 'field' => 'slug', 'terms' => ['renamed', 'kind-6']], ['taxonomy' => 'post_tag', 'field' => 'name', 'terms' => 'tag 3']], 'orderby' => 'ID']);
    found('not of kinds', ['tax_query' => [['taxonomy' => 'category', 'field' => 'slug', 'terms' => ['kind-2'], 'operator' => 'NOT IN']], 'orderby' => 'ID', 'order' => 'ASC']);
    found('of a time', ['date_query' => [['after' => '2023-03-05', 'before' => '2023-06-20', 'inclusive' => true]], 'orderby' => ['date' => 'ASC', 'ID' => 'ASC']]);
    found('of a writer', ['author__in' => [2, 3, 5], 'orderby' => ['comment_count' => 'DESC', 'ID' => 'ASC']]);
    print_r(array_map(fn($one) => [$one->name, $one->count], get_terms(['taxonomy' => ['category', 'post_tag'], 'hide_empty' => false, 'orderby' => 'term_id'])));
    print_r([wp_count_posts(), wp_count_comments(), count_users(), wp_get_archives(['echo' => 0, 'show_post_count' => true])]);
    print_r(array_map(fn($one) => [$one->comment_ID, $one->comment_content], get_comments(['search' => 'Zürich', 'orderby' => 'comment_ID', 'number' => 10])));
    print_r([get_option('of_blog_3'), get_transient('seen_4'), get_adjacent_post(), wp_check_password('other-of-no-worth', get_userdata(3)->user_pass, 3)]);
    break;
case 'export':
    require_once ABSPATH . 'wp-admin/includes/export.php';
    export_wp(['content' => 'all']);
    break;
}
/* It looks for tables that are not there yet; what else goes wrong is a failure. */
foreach ($EZSQL_ERROR ?? [] as $error) {
    echo "fault: {$error['error_str']}: {$error['query']}\n";
    $failed = ($failed ?? 0) || !preg_match("/doesn't exist$/", $error['error_str']);
}
exit((int) ($failed ?? 0));
