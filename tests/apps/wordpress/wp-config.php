<?php
/* Of a blog that only the command line sees: the database is the environment's. */
define('DB_NAME', getenv('TERRACE_WORDPRESS_NAME'));
define('DB_HOST', getenv('TERRACE_WORDPRESS_HOST'));
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $of) {
    define($of . '_KEY', "the key of $of");
    define($of . '_SALT', "the salt of $of");
}
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISABLE_WP_CRON', true);
define('WP_DEBUG', true);
define('WP_DEBUG_DISPLAY', true);
define('SAVEQUERIES', true);
$table_prefix = 'wp_';
$_SERVER += ['HTTP_HOST' => 'localhost', 'REQUEST_URI' => '/', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_METHOD' => 'GET'];
function wp_mail() { return true; }
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
